"""Cases of make_zero_errors.py whose tensor-parallel ranks have slices, by patterns and maps."""
from collections import OrderedDict

from zero_errors import case, model, optimizer
from zero_pickles import Fragment, HalfStorage, LongStorage, Size, Stage, Tensor


def shard(c, info):
    """Two tensor-parallel ranks with the same: a of 3 elements each, b of 2 x 2, c of 2."""
    for name, value in list(c.files.items()):
        c.files[name.replace("mp_rank_00", "mp_rank_01")] = model(1) if "model" in name else optimizer(1, int(name[13]))
    for part in range(2):
        c.files["mp_rank_%02d_model_states.pt" % part]["universal_checkpoint_info"] = info


INFO = {}  # of each case


@case(1)
def degree_of_another(c):
    """Two ranks have slices, and one of them would be taken for the model."""
    shard(c, {SAME: ["^a$", "c"], COLUMNS: ["b"]})
    for part in range(2):
        c.files["mp_rank_%02d_model_states.pt" % part]["checkpoint_parallel_dimensions"] = {"tp_degree": 1}


def small(stage, info):
    """The model file and two optimizer files of two tensor-parallel ranks that have b alone, 2 x 2 of it each."""
    weight = Tensor(0) if stage == 3 else Tensor(2, 2)
    said = {"module": OrderedDict(b=weight), "param_shapes": [OrderedDict(b=Size(2, 2))], "universal_checkpoint_info": info}
    inner = {"zero_stage": Stage(stage), "partition_count": 1}
    state = {"state": {0: {"exp_avg": Tensor(4)}}, "param_groups": [{"params": [0]}]}
    if stage == 3:
        inner.update(optimizer_state_dict=state, fp32_flat_groups=[Tensor(4)])
    else:
        inner.update(base_optimizer_state=state, single_partition_of_fp32_groups=[Tensor(4)],
                     param_slice_mappings=[OrderedDict(b=Fragment(4, 0))])
    return said, {"optimizer_state_dict": inner}, {"optimizer_state_dict": inner}


def c_of_longs(m):
    """The frozen c, of whole numbers on both ranks."""
    m["module"]["c"] = m["frozen_param_fragments"]["c"] = Tensor(2, kind=LongStorage)


def sharded(name, change=None, **info):
    INFO[name] = info

    def add(c):
        shard(c, info)
        if MEAN in info:  # masters of the second rank are others
            for rank in range(2):
                held = c.files["zero_pp_rank_%d_mp_rank_01_optim_states.pt" % rank]["optimizer_state_dict"]
                held["single_partition_of_fp32_groups"] = [Tensor(4, first=10.0)]
        if name == "averaged-numbers":
            c_of_longs(c.model())
        if change is not None:
            change(c.files["mp_rank_01_model_states.pt"])
    case(1, name)(add)


def block(shape, source, dest, holders, **more):
    return dict(shape=shape, source=source, dest=dest, locations=holders, **more)


def mapped(name, shape, *blocks, version=1, scale=None):
    """b by an affine map of two ranks, the others as they are."""
    ranks = {i: {"shard_shape": [2, 2], "pieces": [block(*one, **({} if scale is None else {"scale": scale}))]}
             for i, one in enumerate(blocks)}
    sharded(name, affine_map={"version": version, "params": {"^b$": {"logical_shape": shape, "ranks": ranks}}})


@case(1)
def shard_of_two(c):
    """One of two was copied, whose slices would be taken for the model."""
    c.model()["mp_world_size"] = 2


@case(1)
def noted_shard_of_another_save(c):
    shard(c, {})
    c.model()["mp_world_size"] = 1


MEAN = "parameter_to_average_patterns"
SAME, COLUMNS = "tp_replicated_parameter_patterns", "parameter_with_row_parallelism_patterns"
PARTS, ROWS = "parameter_with_sub_params", "vocabulary_parameter_patterns"
LEFT, RIGHT = ([2, 2], [0, [4, 1]], [0, [2, 1]], [0]), ([2, 2], [2, [4, 1]], [0, [2, 1]], [1])

sharded("noted-slices", **{SAME: ["^a$", "c"], COLUMNS: ["b"]})
sharded("noted-rows", original_vocab_size=3, **{SAME: ["a", "c"], ROWS: ["b"]})
sharded("noted-two-parts", parameter_with_2_sub_params_cat_dim_0=["b"], **{SAME: ["a", "c"]})
sharded("noted-parts", **{SAME: ["a", "c"], PARTS: [{"patterns": ["b"], "shape": [-1, 2], "partition_dim": 1}]})
sharded("noted-widths", sub_param_shard_widths={"b": [[1, 1], [1, 1]]},
        **{SAME: ["a", "c"], PARTS: [{"patterns": ["b"], "shape": [(2, 2), -1], "partition_dim": 0}]})
sharded("slices-not-said")
sharded("slices-of-other-shapes", lambda m: m["param_shapes"][0].update(b=Size(1, 4)), **{COLUMNS: ["b"]})
sharded("slices-of-other-axes", lambda m: m["param_shapes"][0].update(b=Size(4)), **{SAME: ["a"]})
sharded("slice-missing", lambda m: m.update(frozen_param_shapes={}, frozen_param_fragments={}), **{SAME: ["a"]})
sharded("slice-missing-in-module", lambda m: m["module"].pop("c"), **{SAME: ["a"]})
sharded("slice-of-other-shape-in-module", lambda m: m["module"].update(b=Tensor(4, 1)), **{SAME: ["a"]})
sharded("slice-of-other-dtype", lambda m: m["module"].update(c=Tensor(2, kind=HalfStorage)), **{SAME: ["a"]})
sharded("same-of-other-shape", lambda m: m["param_shapes"][0].update(b=Size(1, 4)), **{SAME: ["a", "b"]})
sharded("columns-of-one-axis", **{COLUMNS: ["a"]})
sharded("averaged-of-other-shapes", lambda m: m["param_shapes"][0].update(b=Size(1, 4)), **{MEAN: ["b"]})
sharded("averaged-numbers", lambda m: c_of_longs(m), **{SAME: ["a", "b"], MEAN: ["c"]})
sharded("averaged-twice", **{MEAN: ["a", "^a$"]})
sharded("noted-averaged", **{MEAN: ["a", "b", "c"]})
sharded("noted-averaged-rows", original_vocab_size=1, **{MEAN: ["a", "b", "c"], ROWS: ["b"]})
sharded("noted-averaged-and-same", **{SAME: ["a", "b", "c"], MEAN: ["a", "b", "c"]})
sharded("noted-same-rows", original_vocab_size=1, **{SAME: ["a", "b", "c"], ROWS: ["b"]})
sharded("noted-rows-huge", original_vocab_size=(1 << 62), **{SAME: ["a", "c"], ROWS: ["b"]})
sharded("noted-unused", **{SAME: ["a", "c", "^d$", "^e$"], COLUMNS: ["model.b"]})
sharded("rows-negative", original_vocab_size=-1, **{SAME: ["a", "c"], ROWS: ["b"]})
sharded("layout-undescribed", autotp_unsupported_parameter_patterns={"^b$": "heads are not in order"})
sharded("patterns-no-list", **{SAME: "a"})
sharded("pattern-no-text", **{SAME: [3]})
sharded("pattern-twice", **{SAME: ["a", "^a$"]})
sharded("pattern-no-expression", **{SAME: ["(a"]})
sharded("parts-of-no-axis", **{PARTS: [{"patterns": ["b"], "shape": [2, 2], "partition_dim": 2}]})
sharded("parts-of-other-axes", **{PARTS: [{"patterns": ["b"], "shape": [2], "partition_dim": 0}]})
sharded("parts-that-do-not-divide", **{PARTS: [{"patterns": ["b"], "shape": [3, -1], "partition_dim": 0}]})
sharded("parts-uneven", **{PARTS: [{"patterns": ["b"], "shape": [(3, 1), -1], "partition_dim": 0}]})
sharded("widths-off", sub_param_shard_widths={"b": [[1, 2], [1, 1]]},
        **{PARTS: [{"patterns": ["b"], "shape": [(3, 2), 2], "partition_dim": 0}]})
sharded("widths-huge", sub_param_shard_widths={"b": [[(1 << 62), 1], [(1 << 62), 1], [(1 << 62), 1], [(1 << 62), 1]]},
        **{PARTS: [{"patterns": ["b"], "shape": [(3, 2), 2], "partition_dim": 0}]})
sharded("widths-of-other-ranks", sub_param_shard_widths={"b": [[1, 1, 1]]},
        **{PARTS: [{"patterns": ["b"], "shape": [(3,), 2], "partition_dim": 0}]})
sharded("rows-not-said", **{ROWS: ["b"]})
sharded("rows-of-columns", original_vocab_size=1, **{ROWS: ["b"], COLUMNS: ["b"]})
mapped("noted-map", [2, 4], LEFT, RIGHT)
mapped("map-of-other-version", [2, 4], LEFT, RIGHT, version=2)
mapped("map-scaled", [2, 4], LEFT, RIGHT, scale=0.5)
mapped("map-overlaps", [2, 4], LEFT, ([2, 2], [0, [4, 1]], [0, [2, 1]], [1]))
mapped("map-leaves-holes", [2, 4], LEFT, ([2, 1], [2, [4, 1]], [0, [2, 1]], [1]))
mapped("map-past-end", [2, 4], LEFT, ([2, 2], [3, [4, 1]], [0, [2, 1]], [1]))
mapped("map-strided", [2, 4], LEFT, ([2, 2], [2, [4, 2]], [0, [2, 1]], [1]))
mapped("map-huge", [2, 1 << 62], LEFT, ([2, 1 << 61], [2, [1 << 62, 1]], [0, [2, 1]], [1]))
mapped("map-of-other-ranks", [2, 4], LEFT)


def of_one(name, **info):
    """One tensor-parallel rank, whose patterns speak of tensors that are whole."""
    def add(c):
        c.model()["universal_checkpoint_info"] = info
    case(1, name)(add)


of_one("noted-rows-of-one", original_vocab_size=1, **{SAME: ["a"], ROWS: ["b"]})
of_one("noted-averaged-of-one", **{MEAN: ["b"], COLUMNS: ["a"]})
of_one("rows-of-one-not-said", **{ROWS: ["b"]})


@case(3)
def noted_rows_of_one_in_stage_3(c):
    """Which ds_to_universal does not ask for patterns."""
    for name in c.files:
        if "model" in name:
            c.files[name]["universal_checkpoint_info"] = {"original_vocab_size": 1, ROWS: ["b"]}


@case(1)
def blocks_repeated(c):
    """One list of blocks for many parameters: each would be gone through again."""
    blocks = [block(*LEFT)] * 4000
    names = ["p%d" % i for i in range(20)]
    maps = {"^%s$" % name: {"logical_shape": [2, 4], "ranks": {0: {"shard_shape": [2, 2], "pieces": blocks},
                                                                1: {"shard_shape": [2, 2], "pieces": blocks}}}
            for name in names}
    shard(c, {"affine_map": {"version": 1, "params": maps}})
    for part in range(2):
        c.files["mp_rank_%02d_model_states.pt" % part]["frozen_param_shapes"].update((name, Size(2, 2)) for name in names)


@case(1)
def buffer_of_other_shape(c):
    shard(c, {SAME: ["a"]})
    for part in range(2):
        said = c.files["mp_rank_%02d_model_states.pt" % part]
        said["module"]["d"], said["buffer_names"] = Tensor(part + 1), ["d"]


@case(1)
def pattern_bomb(c):
    shard(c, {SAME: ["(a+)+$"]})
    for part in range(2):
        c.files["mp_rank_%02d_model_states.pt" % part]["param_shapes"][0]["a" * 40 + "!"] = Size(0)


@case(1)
def model_of_shard_missing(c):
    c.files["zero_pp_rank_0_mp_rank_01_optim_states.pt"] = optimizer(1, 0)
    c.files["zero_pp_rank_1_mp_rank_01_optim_states.pt"] = optimizer(1, 1)


@case(1)
def tensor_parallel(c):
    c.files["mp_rank_01_model_states.pt"] = model(1)
    c.files["zero_pp_rank_0_mp_rank_01_optim_states.pt"] = optimizer(1, 0)
    c.files["zero_pp_rank_1_mp_rank_01_optim_states.pt"] = optimizer(1, 1)
