"""Writes tests/golden-errors/zero/<case>/: folders of DeepSpeed's ZeRO, each with one defect.

    python3.11 make_zero_errors.py [FOLDER]

The classes are stand-ins of the same names, so that neither torch nor DeepSpeed is needed; what they pickle to is what
theirs do. What a case is: zero_errors.py.
"""
import os
import re
import shutil
import sys
from collections import OrderedDict

from zero_errors import CASES, HELD, MODEL, OTHER, RANK, STATE, Case, case, drop, model, optimizer, set_in
import zero_errors_muon  # noqa: F401  (its cases)
from zero_errors_slices import COLUMNS, SAME
from zero_pickles import BoolStorage, Fragment, HalfStorage, LongStorage, Size, Stage, Tensor, stand_in

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden-errors", "zero")

case(1, "noted-nothing")(lambda c: None)
case(3, "noted-nothing-3")(lambda c: None)
case(1, "latest-of-no-folder")(lambda c: setattr(c, "latest", "global_step9\n"))
case(1, "latest-empty")(lambda c: setattr(c, "latest", "\n"))
case(1, "latest-escapes")(lambda c: setattr(c, "latest", "../zero"))
case(1, "latest-too-long")(lambda c: setattr(c, "latest", "g" * 300))
drop(1, "model-missing", "mp_rank_00_model_states.pt")
drop(1, "optimizers-missing", "zero_pp_rank_0_mp_rank_00_optim_states.pt", "zero_pp_rank_1_mp_rank_00_optim_states.pt")
drop(1, "rank-missing", "zero_pp_rank_1_mp_rank_00_optim_states.pt")
drop(1, "rank-0-missing", "zero_pp_rank_0_mp_rank_00_optim_states.pt")
drop(3, "model-of-rank-missing", "zero_pp_rank_1_mp_rank_00_model_states.pt")


@case(1)
def rank_twice(c):
    c.files["bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"] = optimizer(1, 1)


@case(1)
def optimizer_of_shard_missing(c):
    c.files["mp_rank_01_model_states.pt"] = model(1)
    c.files["zero_pp_rank_0_mp_rank_01_optim_states.pt"] = optimizer(1, 0)


@case(1)
def optimizers_of_shard_missing(c):
    c.files["mp_rank_01_model_states.pt"] = model(1)


@case(1)
def noted_rank_of_another_save(c):
    c.files["zero_pp_rank_2_mp_rank_00_optim_states.pt"] = optimizer(1, 1)


@case(1)
def object_no_dict(c):
    c.files["mp_rank_00_model_states.pt"] = [1, 2]


@case(1)
def inner_missing(c):
    c.files["zero_pp_rank_0_mp_rank_00_optim_states.pt"] = {"ds_version": "0.19.8"}


set_in(1, "stage-4", RANK, "zero_stage", Stage(4))
set_in(1, "world-zero", RANK, "partition_count", 0)
set_in(1, "world-huge", RANK, "partition_count", 1 << 40)
set_in(1, "world-by-group", RANK, "partition_count", [2, 1])
set_in(1, "partitions-missing", RANK, "single_partition_of_fp32_groups", [])
set_in(1, "partition-no-tensor", RANK, "single_partition_of_fp32_groups", [1.0])
set_in(1, "partition-of-other-dtype", OTHER, "single_partition_of_fp32_groups", [Tensor(4, kind=HalfStorage)])
set_in(1, "partition-too-long", OTHER, "single_partition_of_fp32_groups", [Tensor(2000)])
set_in(1, "stages-differ", OTHER, "zero_stage", Stage(2))
set_in(1, "worlds-differ", OTHER, "partition_count", 3)
case(1, "groups-differ")(
    lambda c: c.rank(1).update(single_partition_of_fp32_groups=[Tensor(4), Tensor(4)], partition_count=[2, 2]))
set_in(1, "steps-differ", STATE, "step", 2)
set_in(1, "state-of-one-rank", STATE, "max_exp_avg_sq", Tensor(4))
set_in(1, "state-no-tensor", STATE, "d", 3.5)
set_in(1, "state-of-no-group", lambda c: c.rank(1)["base_optimizer_state"]["state"], 1, {"step": 1, "exp_avg": Tensor(4)})
set_in(1, "state-short", STATE, "exp_avg", Tensor(3))
set_in(1, "state-of-other-dtype", STATE, "exp_avg", Tensor(4, kind=HalfStorage))
set_in(1, "mappings-no-list", RANK, "param_slice_mappings", {})
set_in(1, "mappings-none", OTHER, "param_slice_mappings", None)
case(1, "mappings-on-one-rank")(lambda c: c.rank(1).pop("param_slice_mappings"))
set_in(1, "mapping-no-table", RANK, "param_slice_mappings", [[1, 2]])
set_in(1, "mapping-no-range", HELD, "a", (3, 0))
set_in(1, "mapping-negative", HELD, "a", Fragment(3, -1))
set_in(1, "mapping-past-end", HELD, "a", Fragment(3, 2))
set_in(1, "mapping-overlaps", HELD, "b", Fragment(2, 2))
set_in(1, "mapping-lies-over", HELD, "b", Fragment(1, 2))
set_in(1, "mapping-huge", HELD, "a", Fragment((1 << 62), 1))
set_in(1, "mapping-unknown", HELD, "z", Fragment(0, 0))
set_in(1, "mapping-frozen", HELD, "c", Fragment(1, 0))
set_in(1, "shapes-no-list", MODEL, "param_shapes", 3)
set_in(1, "shapes-no-table", MODEL, "param_shapes", [3])
set_in(1, "shapes-name-no-text", MODEL, "param_shapes", [{3: Size(3)}])
set_in(1, "shapes-no-shape", MODEL, "param_shapes", [OrderedDict(a=Size(3), b="2, 2")])
set_in(1, "shapes-overflow", MODEL, "param_shapes", [OrderedDict(a=Size(3), b=Size(1 << 40, 1 << 40))])
set_in(1, "shapes-huge", MODEL, "param_shapes", [OrderedDict(a=Size(3), b=Size(1 << 40))])
set_in(3, "shapes-huge-3", MODEL, "param_shapes", [OrderedDict(a=Size(3), b=Size(1 << 63))])
set_in(1, "shapes-twice", MODEL, "param_shapes", [OrderedDict(a=Size(3)), OrderedDict(a=Size(3), b=Size(2, 2))])
set_in(1, "shapes-of-more-groups", MODEL, "param_shapes", [OrderedDict(a=Size(3)), OrderedDict(b=Size(2, 2))])
set_in(1, "shapes-differ", MODEL, "module", OrderedDict(a=Tensor(3), b=Tensor(2, 3), c=Tensor(2)))
set_in(1, "module-none", MODEL, "module", None)
set_in(3, "sum-off", MODEL, "param_shapes", [OrderedDict(a=Size(3), b=Size(2, 3))])
set_in(1, "tag-of-another-step", MODEL, "global_steps", 2)


def at_steps(name, model, ranks, **more):
    """A folder without a tag, whose model says other steps than the optimizers have made."""
    def change(c):
        c.latest = None
        c.model().update(global_steps=model, ds_config={}, **more)
        for rank in range(2):
            c.rank(rank)["base_optimizer_state"]["state"][0]["step"] = ranks
    case(1, name)(change)


at_steps("noted-model-of-an-earlier-step", 1, 3)
at_steps("noted-model-of-a-later-step", 3, 2)
at_steps("noted-model-of-the-step-before", 2, 3)
at_steps("noted-skipped-steps", 3, 2, skipped_steps=1)
at_steps("noted-skipped-too-many", 1, 3, skipped_steps=1 << 62)


@case(3)
def steps_of_sub_groups_differ(c):
    for rank in range(2):
        c.model(rank)["param_shapes"] = [OrderedDict(a=Size(3)), OrderedDict(b=Size(2, 2))]
        inner = c.rank(rank)
        inner["fp32_flat_groups"] = [Tensor(2), Tensor(2)]
        inner["optimizer_state_dict"] = {"state": {k: {"step": k + 1, "exp_avg": Tensor(2)} for k in range(2)},
                                         "param_groups": [{"lr": 0.1, "params": [0, 1]}]}


Scaler = stand_in("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler")


def two_groups(name, step, n=2):
    """The second rank's second group is at another step; n: its elements."""
    def change(c):
        for rank in range(2):
            c.model(rank)["param_shapes"] = [OrderedDict(a=Size(3)), OrderedDict(b=Size(2, 2))] if n else [
                OrderedDict(a=Size(3), b=Size(2, 2))]
            inner, of = c.rank(rank), ([2, 2] if n else [4, 0])
            inner["fp32_flat_groups"] = [Tensor(k) for k in of]
            inner["optimizer_state_dict"]["state"] = {g: {"step": step if (rank, g) == (1, 1) else Tensor(first=1.0),
                                                          "exp_avg": Tensor(k)} for g, k in enumerate(of)}
    case(3, name)(change)


two_groups("steps-of-second-groups-differ", Tensor(first=3.0))
two_groups("noted-steps-of-second-groups", Tensor(first=1.0))
two_groups("noted-step-of-no-elements", Tensor(first=3.0), 0)
set_in(1, "groups-of-ranks-differ", lambda c: c.rank(1)["base_optimizer_state"]["param_groups"][0], "lr", 0.2)
case(1, "noted-groups-in-another-order")(
    lambda c: c.rank(1)["base_optimizer_state"].update(param_groups=[{"params": [0], "lr": 0.1}]))


def scaled(name, value):
    def change(c):
        for rank in range(2):
            c.rank(rank)["loss_scaler"] = value
    case(1, name)(change)


def scaler_of(**attributes):
    scaler = Scaler()
    scaler.__dict__.update(attributes)
    return scaler


def call(module, name, *arguments):
    """What is pickled as a call."""
    of = stand_in(module, name, __init__=lambda self: None, __reduce__=lambda self: (of, arguments))
    return of()


scaled("noted-scaler", scaler_of(cur_scale=4.0, cur_iter=3, dynamic=True))
scaled("noted-scaler-of-a-call", call("posix", "system", "echo"))
scaled("noted-scaler-number", 4.0)
case(3, "noted-groups-again")(lambda c: [
    c.rank(rank)["optimizer_state_dict"].update(param_groups=[{"lr": 0.1, "params": [0]}] * 4096) for rank in range(2)])
case(3, "noted-groups-too-many")(lambda c: [
    c.rank(rank)["optimizer_state_dict"].update(param_groups=[{"lr": 0.1, "params": [0]}] * 4097) for rank in range(2)])
case(3, "noted-groups-of-many-entries")(lambda c: [
    c.rank(rank)["optimizer_state_dict"].update(param_groups=[dict({"x%d" % i: i for i in range(64)}, params=[0])])
    for rank in range(2)])
case(1, "noted-scaler-of-rank-1")(lambda c: [
    c.rank(rank).update(loss_scaler=scaler_of(cur_scale=4.0 + rank, dynamic=True)) for rank in range(2)])
case(1, "noted-client-state")(lambda c: c.model().update(ema={"b": Tensor(2), "a": {0: Tensor(1)}}, best=None))
set_in(1, "noted-client-key", MODEL, 5, "five")


@case(3)
def noted_client_of_ranks(c):
    """Generators of two ranks: one tensor is the same, though it has another number; a key of each is missing."""
    c.model(0).update(same=Tensor(2), rngs={"n": [1, 2], "torch": Tensor(first=1.0)}, of_0=[1])
    c.model(1).update(rngs={"n": [1, 2], "torch": Tensor(first=2.0)}, same=Tensor(2), of_1=[1], seed=5)


case(3, "noted-client-of-ranks-same")(lambda c: [
    c.model(rank).update({"rngs": {"torch": Tensor(first=1.0)}, "seed": 5}) for rank in range(2)])
case(3, "noted-buffer-of-ranks")(lambda c: [
    (c.model(rank)["module"].update({"bn.mean": Tensor(first=rank), "n": Tensor(2)}),
     c.model(rank)["buffer_names"].extend(["bn.mean", "n"])) for rank in range(2)])
case(3, "noted-client-of-ranks-many")(lambda c: c.model(1).update({"k%d" % i: i for i in range(9)}))
case(1, "noted-client-path")(lambda c: c.model().update({"ema": {"b": Tensor(2)}, "ema.b": Tensor(1)}))
case(1, "noted-client-empty")(lambda c: c.model().update({"": Tensor(1)}))
case(1, "noted-client-twice")(lambda c: (lambda t: c.model().update(k1=t, k2={"x": t, "n": 1}))(Tensor(2)))
case(1, "noted-name-of-no-table")(lambda c: c.model()["module"].update(z=c.model()["module"].pop("a")))
case(1, "noted-no-param-groups")(lambda c: [
    c.rank(rank).update(base_optimizer_state=[c.rank(rank)["base_optimizer_state"]["state"][0]]) for rank in range(2)])


def set_numbers(optimizer):
    """Tensors where numbers are meant, of all kinds; a group and a scheduler may have one and the same."""
    lr = Tensor(first=0.25)
    optimizer["param_groups"] = [{"lr": lr, "betas": (Tensor(1, first=0.5, kind=HalfStorage), lr), "params": [0],
                                  "eps": Tensor(first=-3, kind=LongStorage), "amsgrad": Tensor(first=1, kind=BoolStorage)}]


@case(1)
def noted_numbers(c):
    scaler = scaler_of(cur_scale=Tensor(first=4.0), dynamic=False)
    for rank in range(2):
        set_numbers(c.rank(rank)["base_optimizer_state"])
        c.rank(rank)["loss_scaler"] = scaler
    c.model()["lr_scheduler"] = {"base_lrs": [Tensor(first=0.75)], "last_epoch": Tensor(first=2, kind=LongStorage)}


@case(3)
def noted_numbers_of_stage_3(c):
    for rank in range(2):
        set_numbers(c.rank(rank)["optimizer_state_dict"])


def universal(name, stage, settings):
    """What ds_to_universal makes of the model; settings: in optimizer_state.pt."""
    def made(c):
        c.latest_name = "latest_universal"
        c.files = {"mp_rank_00_model_states.pt": c.model()}
        for name, shape in (("a", (3,)), ("b", (2, 2))):
            c.files.update({"zero/%s/%s.pt" % (name, key): {"param": Tensor(*shape), "cat_dim": 0}
                            for key in ("fp32", "exp_avg", "exp_avg_sq")})
            c.files["zero/%s/step.pt" % name] = 2
        c.files["zero/optimizer_state.pt"] = dict({"zero_stage": stage, "param_groups": [{"lr": 0.1, "params": [0]}]}, **settings)
    case(1, name)(made)


NO_NUMBERS = [{"lr": Tensor(2), "betas": (0.9, Tensor(2, 2)), "params": [0]}]
with_numbers = {}
set_numbers(with_numbers)
universal("noted-numbers-of-universal", 1, with_numbers)
universal("noted-settings-of-universal", 1, {"mine": [Tensor()], "param_groups": NO_NUMBERS})
case(1, "noted-groups-of-tensors")(
    lambda c: [c.rank(rank)["base_optimizer_state"].update(param_groups=NO_NUMBERS) for rank in range(2)])
set_in(1, "noted-scheduler-of-a-tensor", MODEL, "lr_scheduler", {"lrs": Tensor(2)})
scaled("noted-scaler-of-a-tensor", scaler_of(cur_scale=Tensor(2), dynamic=False))
set_in(1, "noted-settings-unknown", OTHER, "mine", {"of": {"k": Tensor(1)}})
set_in(3, "noted-settings-unknown-within", lambda c: c.rank(0)["optimizer_state_dict"], "mine", (1, Tensor(4)))
set_in(1, "noted-settings-without-tensors", RANK, "mine", {"k": [1, "two"], "d": {}})
set_in(1, "noted-settings-of-numbers", lambda c: c.rank(1)["base_optimizer_state"], "k", 12)
set_in(1, "stage-no-number", RANK, "zero_stage", Stage("2"))
set_in(1, "stage-huge", RANK, "zero_stage", Stage(1 << 70))
set_in(1, "stage-of-a-call", RANK, "zero_stage", call("posix", "getpid"))
set_in(1, "counts-negative", RANK, "partition_count", [-2])
set_in(1, "counts-too-many", RANK, "partition_count", [3])
set_in(1, "counts-too-few", RANK, "partition_count", [1])
set_in(3, "steps-of-models-differ", lambda c: c.model(1), "global_steps", 2)
set_in(3, "fragment-short", lambda c: c.model(1), "frozen_param_fragments", OrderedDict(c=Tensor(0)))
set_in(3, "fragment-missing", lambda c: c.model(1), "frozen_param_fragments", OrderedDict())
set_in(3, "fragment-unknown", MODEL, "frozen_param_fragments", OrderedDict(z=Tensor(1)))
set_in(3, "parameter-of-nobody", MODEL, "module", OrderedDict(a=Tensor(0), b=Tensor(0), c=Tensor(0), d=Tensor(0)))
set_in(3, "partition-missing", OTHER, "fp32_flat_groups", [Tensor(3)])


@case(1)
def shapes_repeated(c):
    table = OrderedDict(("a%d" % i, Size(1)) for i in range(20))
    c.model()["param_shapes"] = [table] * 2000


@case(1)
def shapes_repeated_beside_data(c):
    """Fewer than the file's bytes, but more than its object can say."""
    table = OrderedDict(("a%d" % i, Size(1)) for i in range(20))
    c.model().update(param_shapes=[table] * 200, data=Tensor(1000))


@case(1)
def partitions_of_others(c):
    """More than padding is: a parameter that param_shapes does not name."""
    for rank in range(2):
        c.rank(rank)["single_partition_of_fp32_groups"] = [Tensor(600)]
        c.rank(rank)["base_optimizer_state"]["state"][0].update(exp_avg=Tensor(600), exp_avg_sq=Tensor(600))


@case(1)
def partitions_repeated(c):
    for rank in range(2):
        c.rank(rank)["single_partition_of_fp32_groups"] *= 1000
        c.rank(rank)["partition_count"] *= 1000


@case(1)
def partitions_repeated_beside_data(c):
    for rank in range(2):
        c.rank(rank)["single_partition_of_fp32_groups"] *= 100
        c.rank(rank)["partition_count"] *= 100
        c.rank(rank)["data"] = Tensor(1600)


@case(1)
def states_of_no_group(c):
    c.rank(0)["base_optimizer_state"]["state"] = {"a": {"exp_avg": Tensor(4)}}


@case(1)
def state_missing(c):
    del STATE(c)["exp_avg_sq"]


@case(1)
def states_missing(c):
    c.rank(1)["base_optimizer_state"]["state"] = {}


@case(1)
def held_by_nobody(c):
    c.rank(0)["param_slice_mappings"][0] = OrderedDict(a=Fragment(3, 0))
    c.rank(1)["param_slice_mappings"][0] = OrderedDict()


@case(1)
def held_in_part(c):
    c.rank(1)["param_slice_mappings"][0] = OrderedDict(b=Fragment(2, 0))


@case(1)
def noted_without_mappings(c):
    del c.rank(0)["param_slice_mappings"], c.rank(1)["param_slice_mappings"]


@case(1)
def noted_former_spellings(c):
    """Of DeepSpeed before 0.3.17, where there was one group: a table alone, and another name of files."""
    noted_without_mappings(c)
    c.model().update(param_shapes=c.model()["param_shapes"][0])
    for rank in range(2):
        name = "zero_pp_rank_%d_mp_rank_00" % rank
        c.files["fp16_" + name + "optim_states.pt"] = c.files.pop(name + "_optim_states.pt")


@case(1)
def short_without_mappings(c):
    noted_without_mappings(c)
    c.rank(1)["single_partition_of_fp32_groups"] = [Tensor(2)]


# optimizer_state.pt says another step than the file of a parameter
universal("universal-steps-differ", 1, {"optimizer_state_dict": {"state": {0: {"step": 1}}}})


@case(1)
def universal_steps_of_sub_groups_differ(c):
    """Nor has a parameter a file of its step."""
    CASES["universal-steps-differ"][1](c)
    c.files["zero/optimizer_state.pt"]["optimizer_state_dict"]["state"] = {
        i: {"step": Tensor(first=first)} for i, first in enumerate((1.0, 1.0, 3.0))}
    for name in "ab":
        c.files.pop("zero/%s/step.pt" % name)


@case(1)
def universal_step_missing(c):
    CASES["universal-steps-differ"][1](c)
    c.files["zero/optimizer_state.pt"].pop("optimizer_state_dict")
    c.files.pop("zero/b/step.pt")


@case(1)
def universal_state_of_one(c):
    """A state that the first parameter has not."""
    universal_step_missing(c)
    c.files["zero/b/step.pt"] = 2
    c.files["zero/b/max_exp_avg_sq.pt"] = {"param": Tensor(2, 2), "cat_dim": 0}


@case(1)
def universal_state_no_tensor(c):
    """What is no tensor makes no state."""
    universal_step_missing(c)
    c.files["zero/b/step.pt"] = 2
    c.files["zero/a/d.pt"] = c.files["zero/b/d.pt"] = [1, 2]


# ---- experts -----------------------------------------------------------------------------------------------------

EXPERT = "mix.deepspeed_moe.experts.deepspeed_experts.%d.w"


def expert_file(c, expert):
    return c.files["layer_0_expert_%d_mp_rank_00_model_states.pt" % expert]


def moe(name=None):
    """Two experts, one on each rank, beside the parameter a, which is cut among both."""
    def add(change):
        def made(c):
            c.model().update(num_experts=[2], dp_world_size=2, ds_autoep_layers=None, module=OrderedDict(a=Tensor(3)),
                             param_shapes=[OrderedDict(a=Size(3)), OrderedDict({EXPERT % 0: Size(2)})],
                             frozen_param_shapes=OrderedDict(), frozen_param_fragments=OrderedDict())
            for rank in range(2):
                n = 2 - rank
                c.files["layer_0_expert_%d_mp_rank_00_model_states.pt" % rank] = OrderedDict({EXPERT % rank: Tensor(2)})
                c.rank(rank).update(partition_count=[2, 1], single_partition_of_fp32_groups=[Tensor(n), Tensor(2)])
                c.rank(rank)["base_optimizer_state"] = {
                    "state": {i: {"step": 1, "exp_avg": Tensor(n)} for i, n in ((0, n), (1, 2))},
                    "param_groups": [{"lr": 0.1, "params": [0]}, {"lr": 0.1, "params": [1], "moe": True}]}
                c.rank(rank)["param_slice_mappings"] = [OrderedDict(a=Fragment(n, 0)),
                                                        OrderedDict({EXPERT % 0: Fragment(2, 0)})]
            change(c)
        CASES[name or change.__name__.replace("_", "-")] = (2, made)
        return change
    return add


moe("noted-experts")(lambda c: None)
moe("expert-missing")(lambda c: c.files.pop("layer_0_expert_1_mp_rank_00_model_states.pt"))
moe("expert-of-none")(lambda c: c.model().update(num_experts=[1]))
moe("expert-of-no-layer")(lambda c: c.model().update(num_experts=[]))
moe("experts-huge")(lambda c: c.model().update(num_experts=[1 << 40]))
moe("experts-negative")(lambda c: c.model().update(num_experts=[-1]))
moe("experts-missing")(lambda c: [c.files.pop("layer_0_expert_%d_mp_rank_00_model_states.pt" % i) for i in range(2)])
moe("expert-of-another")(lambda c: expert_file(c, 1).update({EXPERT % 0: Tensor(2)}))
moe("expert-empty")(lambda c: expert_file(c, 1).clear())
moe("expert-of-other-shape")(lambda c: expert_file(c, 1).update({EXPERT % 1: Tensor(3)}))
moe("experts-automatic")(lambda c: c.model().update(ds_autoep_layers=[{"moe_layer_id": 0}]))
moe("experts-of-no-number")(lambda c: c.model().update(param_shapes=[OrderedDict(a=Size(3)), OrderedDict(w=Size(2))]))
moe("experts-of-many-ranks")(lambda c: [c.rank(r).update(partition_count=[2, 3]) for r in range(2)])
moe("counts-differ")(lambda c: c.rank(1).update(partition_count=[2, 2]))
moe("counts-short")(lambda c: [c.rank(r).update(partition_count=[2]) for r in range(2)])
moe("expert-of-nobody")(lambda c: c.rank(1)["param_slice_mappings"][1].clear())
moe("expert-mapped-as-another")(lambda c: c.rank(1)["param_slice_mappings"].__setitem__(
    1, OrderedDict({EXPERT % 1: Fragment(2, 0)})))


@moe()
def noted_experts_of_old(c):
    """Before layers had numbers: a file of each expert of all layers."""
    c.model().update(num_experts=2)
    for i in range(2):
        c.files["expert_%d_mp_rank_00_model_states.pt" % i] = c.files.pop("layer_0_expert_%d_mp_rank_00_model_states.pt" % i)


@moe()
def expert_of_old_missing(c):
    noted_experts_of_old(c)
    del c.files["expert_1_mp_rank_00_model_states.pt"]


@moe()
def expert_twice(c):
    c.files["expert_1_mp_rank_00_model_states.pt"] = expert_file(c, 1)


@moe()
def experts_repeated(c):
    c.model()["param_shapes"][1].update((EXPERT % 0 + "%d" % i, Size(0)) for i in range(40))
    for rank in range(2):
        c.files["layer_0_expert_%d_mp_rank_00_model_states.pt" % rank] = {}


def whole_moe(name, change=lambda ranks: None):
    """Without ZeRO: two expert-parallel ranks with an expert each, and an optimizer of each beside."""
    def made(c):
        for rank in range(2):
            states = {k: {"step": 1, "exp_avg": Tensor(*shape)} for k, shape in enumerate(((3,), (2, 2)))}
            c.files["expp_rank_%d_mp_rank_00_optim_states.pt" % rank] = {
                "optimizer": {"state": states, "param_groups": [{"params": [0]}, {"params": [1], "moe": True}]}}
            del c.files["zero_pp_rank_%d_mp_rank_00_optim_states.pt" % rank]
            c.files["layer_0_expert_%d_mp_rank_00_model_states.pt" % rank] = {EXPERT % rank: Tensor(2, 2)}
        c.model().update(module=OrderedDict(a=Tensor(3)), num_experts=[2], param_shapes=None, frozen_param_shapes=None,
                         frozen_param_fragments=None, ds_config={})
        change([c.files["expp_rank_%d_mp_rank_00_optim_states.pt" % rank]["optimizer"]["state"] for rank in range(2)])
    case(0, name)(made)


def set_steps(of_ranks):
    def change(ranks):
        for rank, steps in zip(ranks, of_ranks):
            for k, step in enumerate(steps):
                rank[k]["step"] = step
    return change


whole_moe("noted-experts-whole")
whole_moe("steps-of-experts-differ", set_steps(((1, 1), (2, 2))))
whole_moe("steps-of-one-group-differ", set_steps(((1, 1), (1, 2))))
whole_moe("noted-steps-of-groups", set_steps(((1, 2), (1, 2))))
whole_moe("noted-experts-of-another-step", set_steps(((4, 4), (4, 4))))


# ---- pipelines ---------------------------------------------------------------------------------------------------


def pipe(name=None):
    """Two stages, each with a layer of its own, and module t, which is tied: layers 0, 1 (t) and 2."""
    def add(change):
        def made(c):
            c.files = {"layer_%02d-model_states.pt" % i: OrderedDict(b=Tensor(2, 2)) if i == 1 else OrderedDict(a=Tensor(3))
                       for i in range(3)}
            for stage in range(2):
                names = {"a": "%d.a" % (2 * stage), "b": "tied_modules.t.b"}
                c.files["mp_rank_%02d_model_states.pt" % stage] = dict(
                    model(1), module=None, mp_world_size=2, frozen_param_shapes=None, frozen_param_fragments=None,
                    param_shapes=[OrderedDict({names["a"]: Size(3), names["b"]: Size(2, 2)})])
                for rank in range(2):
                    file = c.files["zero_pp_rank_%d_mp_rank_%02d_optim_states.pt" % (rank, stage)] = optimizer(1, rank)
                    held = file["optimizer_state_dict"]["param_slice_mappings"]
                    held[0] = OrderedDict((names[key], value) for key, value in held[0].items())
            change(c)
        CASES[name or change.__name__.replace("_", "-")] = (1, made)
        return change
    return add


LAYER = lambda c, i: c.files["layer_%s-model_states.pt" % (i if isinstance(i, str) else "%02d" % i)]

pipe("noted-pipeline")(lambda c: None)
pipe("noted-layer-twice-tied")(lambda c: c.files.update({"layer_03-model_states.pt": LAYER(c, 1)}))
pipe("layer-missing")(lambda c: c.files.pop("layer_02-model_states.pt"))
pipe("layer-twice")(lambda c: c.files.update({"layer_02-model_00-model_states.pt": LAYER(c, 2)}))
pipe("layer-of-tensor-parallel")(lambda c: c.files.update({"layer_02-model_01-model_states.pt": LAYER(c, 2)}))
pipe("layer-of-other-shape")(lambda c: LAYER(c, 2).update(a=Tensor(4)))
pipe("layer-no-dict")(lambda c: c.files.update({"layer_02-model_states.pt": [Tensor(3)]}))
pipe("layers-beside-module")(lambda c: c.model().update(module=OrderedDict(a=Tensor(3))))
pipe("layer-of-experts")(lambda c: c.model().update(num_experts=[2]))
pipe("tied-of-other-shape")(lambda c: c.files["mp_rank_01_model_states.pt"].update(
    param_shapes=[OrderedDict({"2.a": Size(3), "tied_modules.t.b": Size(4)})]))


@pipe()
def tied_as_two(c):
    """Both modules t and u have the shape of what layer 1's file holds."""
    c.files["mp_rank_01_model_states.pt"]["param_shapes"] = [OrderedDict({"2.a": Size(3), "tied_modules.u.b": Size(2, 2)})]
    for rank in range(2):
        held = c.files["zero_pp_rank_%d_mp_rank_01_optim_states.pt" % rank]["optimizer_state_dict"]["param_slice_mappings"]
        held[0] = OrderedDict((name.replace("s.t.", "s.u."), value) for name, value in held[0].items())


@pipe()
def group_of_stage(c):
    for rank in range(2):
        held = c.files["zero_pp_rank_%d_mp_rank_01_optim_states.pt" % rank]["optimizer_state_dict"]
        held["base_optimizer_state"]["param_groups"][0]["lr"] = 0.2


def whole(name, change=lambda c, state: None, shapes=((3,), (2, 2)), groups=((0, 1),)):
    """Without ZeRO: a model file with the optimizer in it, of parameters called p0, p1, ..."""
    def made(c):
        weights = OrderedDict(("p%d" % i, Tensor(*shape)) for i, shape in enumerate(shapes))
        states = {i: {"step": 1, "exp_avg": Tensor(*shape)} for i, shape in enumerate(shapes)}
        c.files = {"mp_rank_00_model_states.pt": {
            "module": weights, "buffer_names": [], "param_shapes": None, "global_steps": 1, "ds_version": "0.19.8",
            "ds_config": {}, "optimizer": {"state": states, "param_groups": [{"params": list(g)} for g in groups]}}}
        change(c, states)
    case(0, name)(made)


def in_slices(c, states):
    said = dict(c.model(), mp_world_size=2, universal_checkpoint_info={SAME: ["p0"], COLUMNS: ["p1"]})
    c.files = {"mp_rank_%02d_model_states.pt" % part: said for part in range(2)}


whole("noted-whole-state-missing", lambda c, states: states.pop(1))
whole("noted-whole-step-alone", lambda c, states: states[1].pop("exp_avg"))
whole("noted-whole-shape-in-two-groups", shapes=((3,), (3,)), groups=((0,), (1,)))
whole("noted-whole-slices", in_slices)


def in_another_order(c, states):
    """States in the order in which they were made, and numbers of a group in one of their own: places count."""
    states[0]["exp_avg"], states[1]["exp_avg"] = Tensor(3, first=10.0), Tensor(3, first=20.0)
    states[2]["exp_avg"] = Tensor(2, 2)
    c.model()["optimizer"].update(state={n: states[n] for n in (1, 2, 0)}, param_groups=[{"params": [1, 2, 0]}])


whole("noted-whole-in-another-order", in_another_order, shapes=((3,), (2, 2), (3,)), groups=((0, 1, 2),))
whole("noted-whole-state-twice", lambda c, states: c.model()["optimizer"].update(param_groups=[{"params": [0, 0]}]))


def set_whole(change):
    return lambda c, states: change(c.model()["optimizer"])


def in_numbers(optimizer):
    set_numbers(optimizer)
    optimizer["param_groups"][0]["params"] = [0, 1]
    optimizer.update(dynamic_loss_scale=False, cur_scale=Tensor(first=4.0))


whole("noted-whole-numbers", set_whole(in_numbers))
whole("noted-whole-settings-unknown", set_whole(lambda optimizer: optimizer.update(mine=[Tensor(3), Tensor()])))


def with_masters(c, change=lambda said: None):
    """As FP16_UnfusedOptimizer has it."""
    said = c.files["mp_rank_00_model_states.pt"]
    said["optimizer"] = {"optimizer_state_dict": said["optimizer"], "fp32_groups": [[Tensor(3), Tensor(2, 2)]]}
    change(said["optimizer"])


def flat(name, rows=(7,), change=lambda said: None):
    """As FP16_Optimizer has it: rows of masters."""
    def made(c, states):
        said = c.files["mp_rank_00_model_states.pt"]
        state = {g: {"step": 1, "exp_avg": Tensor(n)} for g, n in enumerate(rows)}
        groups = [{"step": 0, "params": [g]} for g in range(len(rows))]
        said["optimizer"] = {"optimizer_state_dict": {"state": state, "param_groups": groups},
                             "fp32_groups_flat": [Tensor(n) for n in rows]}
        change(said["optimizer"])
    whole(name, made)


def state_of_row(said, g):
    return said["optimizer_state_dict"]["state"][g]


whole("noted-whole-masters", lambda c, states: with_masters(c))
whole("noted-whole-masters-alone", lambda c, states: (states.clear(), with_masters(c)))
whole("noted-whole-masters-missing", lambda c, states: with_masters(c, lambda said: said.pop("fp32_groups")))
whole("noted-whole-master-missing", lambda c, states: with_masters(c, lambda said: said["fp32_groups"][0].pop()))
whole("noted-whole-master-none", lambda c, states: with_masters(c, lambda said: said["fp32_groups"][0].__setitem__(1, None)))
flat("noted-flat")
flat("noted-flat-of-two-groups", (4, 3))
flat("noted-flat-of-some", (4,))
flat("noted-flat-missing", change=lambda said: said.pop("fp32_groups_flat"))
flat("noted-flat-of-fewer-groups", (4, 3), lambda said: said["fp32_groups_flat"].pop())
flat("noted-flat-of-many", change=lambda said: said["optimizer_state_dict"]["param_groups"][0]["params"].append(1))
flat("flat-no-tensor", change=lambda said: said["fp32_groups_flat"].__setitem__(0, None))
flat("flat-state-missing", (4, 3), lambda said: state_of_row(said, 1).pop("exp_avg"))
flat("flat-state-short", change=lambda said: state_of_row(said, 0).update(exp_avg=Tensor(6)))


def whole_pipe(name):
    """The same without ZeRO: two stages with a layer and a whole optimizer each."""
    def add(change):
        def made(c):
            c.files = {"layer_00-model_states.pt": OrderedDict(a=Tensor(3)),
                       "layer_01-model_states.pt": OrderedDict(b=Tensor(2, 2))}
            for stage, shape in enumerate(((3,), (2, 2))):
                state = {"state": {0: {"step": 1, "exp_avg": Tensor(*shape)}}, "param_groups": [{"lr": 0.1, "params": [0]}]}
                c.files["mp_rank_%02d_model_states.pt" % stage] = {
                    "module": None, "mp_world_size": 2, "global_steps": 1, "ds_version": "0.19.8", "optimizer": state}
            change(c)
        CASES[name] = (1, made)
        return change
    return add


whole_pipe("noted-pipeline-whole")(lambda c: None)
whole_pipe("noted-flat-of-pipeline")(lambda c: [
    said.update(optimizer={"optimizer_state_dict": said["optimizer"], "fp32_groups_flat": [Tensor(3)]})
    for name, said in c.files.items() if name.startswith("mp_rank")])
whole_pipe("layer-missing-whole")(lambda c: c.files.pop("layer_01-model_states.pt"))
whole_pipe("state-no-tensor-whole")(
    lambda c: c.files["mp_rank_01_model_states.pt"]["optimizer"]["state"][0].update(d=[1, 2]))
whole_pipe("group-of-stage-whole")(
    lambda c: c.files["mp_rank_01_model_states.pt"]["optimizer"]["param_groups"][0].update(lr=0.2))


def grid(name):
    """The pipeline with two tensor-parallel ranks in each stage: all have a of their layers, and rows of t."""
    def add(change):
        def made(c):
            files = {}
            for part in range(2):
                CASES["noted-pipeline"][1](c)
                for name, value in c.files.items():
                    name = re.sub("(?<=mp_rank_0)[01]", lambda stage: str(2 * int(stage[0]) + part), name)
                    files[name.replace("-model_s", "-model_%02d-model_s" % part)] = value
            c.files = files
            for part in range(4):
                c.files["mp_rank_%02d_model_states.pt" % part].update(
                    mp_world_size=4, checkpoint_parallel_dimensions={"pp_degree": 2, "tp_degree": 2},
                    universal_checkpoint_info={SAME: [r"\d+\.a"]})
            change(c)
        CASES[name] = (1, made)
        return change
    return add


def without_slice(c, part, name):
    SHARDS(c)[part]["param_shapes"][0].pop(name)
    for rank in range(2):
        held = c.files["zero_pp_rank_%d_mp_rank_%02d_optim_states.pt" % (rank, part)]["optimizer_state_dict"]
        held["param_slice_mappings"][0].pop(name, None)


SHARDS = lambda c: [c.files["mp_rank_%02d_model_states.pt" % part] for part in range(4)]

grid("noted-grid")(lambda c: None)
grid("noted-grid-of-more-ranks")(lambda c: c.files.update({"layer_02-model_02-model_states.pt": LAYER(c, "02-model_00")}))
grid("noted-grid-layer-unknown")(
    lambda c: c.files.update({"layer_09-model_%02d-model_states.pt" % part: OrderedDict(z=Tensor(3)) for part in range(2)}))
grid("grid-layer-of-another")(
    lambda c: [c.files.update({"layer_02-model_%02d-model_states.pt" % part: OrderedDict(z=Tensor(3))}) for part in range(2)])
grid("grid-layer-missing")(lambda c: c.files.pop("layer_00-model_01-model_states.pt"))
grid("grid-last-layer-missing")(lambda c: c.files.pop("layer_02-model_01-model_states.pt"))
grid("grid-layers-missing")(lambda c: [c.files.pop("layer_02-model_%02d-model_states.pt" % part) for part in range(2)])
grid("grid-layer-twice")(lambda c: c.files.update({"layer_02-model_1-model_states.pt": LAYER(c, "02-model_01")}))
grid("grid-degree-of-another")(lambda c: [s["checkpoint_parallel_dimensions"].update(tp_degree=4) for s in SHARDS(c)])
grid("grid-tied-slice-missing")(lambda c: without_slice(c, 3, "tied_modules.t.b"))
grid("grid-first-slice-missing")(lambda c: without_slice(c, 2, "2.a"))
grid("grid-without-patterns")(lambda c: [s.pop("universal_checkpoint_info") for s in SHARDS(c)])
grid("grid-slice-missing-in-layer")(lambda c: LAYER(c, "01-model_01").pop("b"))
grid("grid-name-of-one-rank")(lambda c: LAYER(c, "01-model_01").update(z=Tensor(1)))
grid("grid-slice-of-other-shape")(lambda c: LAYER(c, "01-model_01").update(b=Tensor(3, 2)))
grid("grid-tied-without-zero")(lambda c: [
    (s.pop("param_shapes"), s.update(universal_checkpoint_info={SAME: [r"tied_modules\.t\.b"]}),
     [c.files.pop("zero_pp_rank_%d_mp_rank_%02d_optim_states.pt" % (rank, i)) for rank in range(2)])
    for i, s in enumerate(SHARDS(c))])


@pipe()
def stage_missing(c):
    for name in ("mp_rank_01_model", "zero_pp_rank_0_mp_rank_01_optim", "zero_pp_rank_1_mp_rank_01_optim"):
        del c.files[name + "_states.pt"]


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else ROOT
    os.makedirs(root, exist_ok=True)
    for name in os.listdir(root):
        if os.path.isdir(os.path.join(root, name)):
            shutil.rmtree(os.path.join(root, name))
    for name, (stage, change) in CASES.items():
        c = Case(stage)
        change(c)
        c.write(os.path.join(root, name))


if __name__ == "__main__":
    main()
