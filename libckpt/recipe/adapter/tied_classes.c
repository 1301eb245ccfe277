/* tied_classes.c - see tied_classes.h.
 *
 * Source: all_tied_weights_keys of every class of transformers 5.23. Classes that tie more than one embedding and the
 * bias of its head, or names that an expression describes, have no row. */
#include "libckpt/recipe/adapter/tied_classes.h"

#include <stddef.h>
#include <string.h>

#include "libckpt/base/text.h"

static const ckpt_tied_class rows[] = {
    {"embed_tokens.weight",
     {"lm_head.weight"},
     {NULL},
     " AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM AriaForConditionalGeneration AriaTextForCausalLM "
     "AXK1ForCausalLM AXK2ForCausalLM AyaVisionForConditionalGeneration BambaForCausalLM BartForCausalLM "
     "BeamForCausalLM BitNetForCausalLM BlenderbotForCausalLM BlenderbotSmallForCausalLM "
     "ChameleonForConditionalGeneration Cohere2ForCausalLM Cohere2MoeForCausalLM "
     "Cohere2VisionForConditionalGeneration CohereCompassForCausalLM CohereCompassForConditionalGeneration "
     "CohereForCausalLM Cosmos3OmniForConditionalGeneration CwmForCausalLM "
     "DeepseekOcr2ForConditionalGeneration DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM "
     "DeepseekV4ForCausalLM DeepseekVLForConditionalGeneration DeepseekVLHybridForConditionalGeneration "
     "DiffLlamaForCausalLM DogeForCausalLM Dots1ForCausalLM Dots3NoteForCausalLM "
     "Dots3NoteForConditionalGeneration Emu3ForCausalLM Emu3ForConditionalGeneration Ernie4_5_MoeForCausalLM "
     "Ernie4_5_VL_MoeForConditionalGeneration Ernie4_5_VLMoeForConditionalGeneration Ernie4_5ForCausalLM "
     "EuroBertForMaskedLM Exaone4_5_ForConditionalGeneration Exaone4ForCausalLM ExaoneMoeForCausalLM "
     "FalconH1ForCausalLM FastVlmForConditionalGeneration FlexOlmoForCausalLM FlintForCausalLM "
     "FunAsrNanoForConditionalGeneration FuyuForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM "
     "Gemma3ForConditionalGeneration Gemma3nForCausalLM Gemma3nForConditionalGeneration "
     "Gemma4AssistantForCausalLM Gemma4ForCausalLM Gemma4ForConditionalGeneration "
     "Gemma4UnifiedAssistantForCausalLM Gemma4UnifiedForCausalLM Gemma4UnifiedForConditionalGeneration "
     "GemmaForCausalLM Glm46VForConditionalGeneration Glm4ForCausalLM Glm4MoeForCausalLM "
     "Glm4MoeLiteForCausalLM Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration "
     "Glm5NextForConditionalGeneration GlmAsrForConditionalGeneration GlmForCausalLM GlmMoeDsaForCausalLM "
     "GlmOcrForConditionalGeneration GotOcr2ForConditionalGeneration GptOssForCausalLM "
     "Granite4VisionForConditionalGeneration GraniteDoclingForConditionalGeneration GraniteForCausalLM "
     "GraniteMoeForCausalLM GraniteMoeHybridForCausalLM GraniteMoeSharedForCausalLM GraniteMoeSWAForCausalLM "
     "GraniteSpeechForConditionalGeneration GraniteSpeechPlusForConditionalGeneration GraniteSWAForCausalLM "
     "HeliumForCausalLM HrmTextForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM "
     "HunYuanVLForConditionalGeneration HyperCLOVAXForCausalLM HyperCLOVAXVisionV2ForConditionalGeneration "
     "HYV3ForCausalLM HYV4ForCausalLM Idefics2ForConditionalGeneration Idefics3ForConditionalGeneration "
     "IdeficsForVisionText2Text InternVLForConditionalGeneration Jais2ForCausalLM JambaForCausalLM "
     "JanusForConditionalGeneration JetMoeForCausalLM Kimi_K25ForConditionalGeneration Kolibri1ForCausalLM "
     "KyutaiSpeechToTextForConditionalGeneration LagunaForCausalLM Lfm2ForCausalLM Lfm2MoeForCausalLM "
     "Lfm2VlForConditionalGeneration Lfm3ForCausalLM Lfm3VlForConditionalGeneration "
     "LightOnOcrForConditionalGeneration Llama4ForCausalLM LlamaForCausalLM LlavaForConditionalGeneration "
     "LlavaNextForConditionalGeneration LlavaNextVideoForConditionalGeneration "
     "LlavaOnevisionForConditionalGeneration LongcatFlashForCausalLM MarianForCausalLM MBartForCausalLM "
     "MellumForCausalLM MiMoV2FlashForCausalLM MiniCPM3ForCausalLM MiniCPMOcrForConditionalGeneration "
     "MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration MiniMaxForCausalLM "
     "MiniMaxM2ForCausalLM MiniMaxM3SparseForConditionalGeneration MiniMaxM3VLForCausalLM "
     "Ministral3ForCausalLM MinistralForCausalLM Mistral3ForConditionalGeneration Mistral4ForCausalLM "
     "MistralForCausalLM MistralLarge4ForConditionalGeneration MixtralForCausalLM "
     "MossTranscribeDiarizeForConditionalGeneration MuseGlimmerForConditionalGeneration MvpForCausalLM "
     "NanoChatForCausalLM NemotronForCausalLM Olmo2ForCausalLM Olmo3ForCausalLM OlmoeForCausalLM "
     "OlmoForCausalLM OlmoHybridForCausalLM OPTForCausalLM PaddleOCRVLForConditionalGeneration "
     "PaliGemmaForConditionalGeneration PegasusForCausalLM PerceptionLMForConditionalGeneration "
     "PersimmonForCausalLM Phi3ForCausalLM Phi4MultimodalForCausalLM PhiForCausalLM PhimoeForCausalLM "
     "PLBartForCausalLM QianfanOCRForConditionalGeneration Qwen2_5_VLForConditionalGeneration "
     "Qwen2_5OmniThinkerForConditionalGeneration Qwen2ForCausalLM Qwen2MoeForCausalLM "
     "Qwen2VLForConditionalGeneration Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM "
     "Qwen3_5MoeForConditionalGeneration Qwen3ASRForConditionalGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM "
     "Qwen3NextForCausalLM Qwen3OmniMoeThinkerForConditionalGeneration Qwen3VLForConditionalGeneration "
     "Qwen3VLMoeForConditionalGeneration Qwen4ExpForCausalLM Qwen4ExpForConditionalGeneration "
     "RecurrentGemmaForCausalLM SeamlessM4TTextToUnitForConditionalGeneration "
     "SeamlessM4Tv2TextToUnitForConditionalGeneration SeedOssForCausalLM SmolLM3ForCausalLM "
     "SmolVLMForConditionalGeneration SolarOpenForCausalLM Speech2TextForConditionalGeneration "
     "StableLmForCausalLM Starcoder2ForCausalLM Step3p7ForConditionalGeneration UltraVBertForMaskedLM "
     "UnlimitedOcrForConditionalGeneration VaultGemmaForCausalLM VibeVoiceForConditionalGeneration "
     "VideoLlama3ForConditionalGeneration VideoLlavaForConditionalGeneration VipLlavaForConditionalGeneration "
     "VoxtralRealtimeForConditionalGeneration XGLMForCausalLM YoutuForCausalLM ZayaForCausalLM ",
     false},
    {"word_embeddings.weight",
     {"cls.predictions.decoder.weight"},
     {"cls.predictions.bias", "cls.predictions.decoder.bias"},
     " BertForMaskedLM BertForPreTraining BertLMHeadModel BigBirdForCausalLM BigBirdForMaskedLM "
     "BigBirdForPreTraining DebertaForMaskedLM DebertaV2ForMaskedLM ErnieForCausalLM ErnieForMaskedLM "
     "ErnieForPreTraining FNetForMaskedLM FNetForPreTraining LayoutLMForMaskedLM MegatronBertForCausalLM "
     "MegatronBertForMaskedLM MegatronBertForPreTraining MobileBertForMaskedLM MobileBertForPreTraining "
     "MraForMaskedLM NomicBertForMaskedLM NystromformerForMaskedLM RoCBertForCausalLM RoCBertForMaskedLM "
     "RoCBertForPreTraining RoFormerForCausalLM RoFormerForMaskedLM SqueezeBertForMaskedLM TapasForMaskedLM "
     "VisualBertForPreTraining VisualBertForRegionToPhraseAlignment YosoForMaskedLM ",
     false},
    {"shared.weight",
     {"decoder.embed_tokens.weight", "encoder.embed_tokens.weight"},
     {NULL},
     " BartModel BigBirdPegasusModel BlenderbotModel BlenderbotSmallModel LEDModel M2M100Model MarianModel "
     "MBartModel MvpModel NllbMoeModel PegasusModel PegasusXModel PLBartModel ",
     false},
    {"shared.weight",
     {"decoder.embed_tokens.weight", "encoder.embed_tokens.weight"},
     {NULL},
     " LongT5Model MT5ForQuestionAnswering MT5Model SwitchTransformersModel T5ForQuestionAnswering T5Model "
     "UMT5ForQuestionAnswering UMT5Model ",
     true},
    {"word_embeddings.weight",
     {"lm_head.decoder.weight"},
     {"lm_head.bias", "lm_head.decoder.bias"},
     " BertGenerationDecoder CamembertForCausalLM CamembertForMaskedLM Data2VecTextForCausalLM "
     "Data2VecTextForMaskedLM IBertForMaskedLM JinaEmbeddingsV3ForMaskedLM LongformerForMaskedLM "
     "MPNetForMaskedLM RobertaForCausalLM RobertaForMaskedLM RobertaPreLayerNormForCausalLM "
     "RobertaPreLayerNormForMaskedLM XLMRobertaForCausalLM XLMRobertaForMaskedLM XLMRobertaXLForCausalLM "
     "XLMRobertaXLForMaskedLM XmodForCausalLM XmodForMaskedLM ",
     false},
    {"shared.weight",
     {"lm_head.weight", "model.decoder.embed_tokens.weight", "model.encoder.embed_tokens.weight"},
     {NULL},
     " BartForConditionalGeneration BigBirdPegasusForConditionalGeneration BlenderbotForConditionalGeneration "
     "BlenderbotSmallForConditionalGeneration M2M100ForConditionalGeneration MarianMTModel "
     "MBartForConditionalGeneration MvpForConditionalGeneration NllbMoeForConditionalGeneration "
     "PegasusForConditionalGeneration PegasusXForConditionalGeneration PLBartForConditionalGeneration ",
     false},
    {"shared.weight",
     {"model.decoder.embed_tokens.weight", "model.encoder.embed_tokens.weight"},
     {NULL},
     " BartForQuestionAnswering BartForSequenceClassification BigBirdPegasusForQuestionAnswering "
     "BigBirdPegasusForSequenceClassification MBartForQuestionAnswering MBartForSequenceClassification "
     "MvpForQuestionAnswering MvpForSequenceClassification PLBartForSequenceClassification ",
     false},
    {"wte.weight",
     {"lm_head.weight"},
     {NULL},
     " CodeGenForCausalLM DbrxForCausalLM GPT2DoubleHeadsModel GPT2LMHeadModel GPTBigCodeForCausalLM "
     "GPTJForCausalLM GPTNeoForCausalLM ImageGPTForCausalImageModeling MptForCausalLM ",
     false},
    {"embed_tokens.weight",
     {"proj_out.weight"},
     {NULL},
     " CanaryForConditionalGeneration CohereAsrForConditionalGeneration MoonshineForConditionalGeneration "
     "MoonshineStreamingForConditionalGeneration WhisperForCausalLM WhisperForConditionalGeneration ",
     false},
    {"shared.weight",
     {"encoder.embed_tokens.weight"},
     {NULL},
     " LongT5EncoderModel MT5EncoderModel SwitchTransformersEncoderModel T5EncoderModel UMT5EncoderModel ",
     true},
    {"shared.weight",
     {"lm_head.weight", "decoder.embed_tokens.weight", "encoder.embed_tokens.weight"},
     {NULL},
     " LongT5ForConditionalGeneration MT5ForConditionalGeneration SwitchTransformersForConditionalGeneration "
     "T5ForConditionalGeneration UMT5ForConditionalGeneration ",
     true},
    {"embeddings.weight",
     {"lm_head.weight"},
     {NULL},
     " FalconMambaForCausalLM Mamba2ForCausalLM MambaForCausalLM ",
     false},
    {"shared.weight",
     {"transformer.decoder.embed_tokens.weight", "transformer.encoder.embed_tokens.weight"},
     {NULL},
     " MT5ForSequenceClassification T5ForSequenceClassification UMT5ForSequenceClassification ",
     true},
    {"shared.weight",
     {"transformer.encoder.embed_tokens.weight"},
     {NULL},
     " MT5ForTokenClassification T5ForTokenClassification UMT5ForTokenClassification ",
     true},
    {"word_embeddings.weight",
     {"generator_lm_head.weight"},
     {NULL},
     " ConvBertForMaskedLM ElectraForCausalLM ElectraForMaskedLM ",
     false},
    {"word_embeddings.weight",
     {"lm_head.weight"},
     {NULL},
     " BloomForCausalLM FalconForCausalLM FunnelForMaskedLM ",
     false},
    {"embed_tokens.weight", {"output_projection.weight"}, {NULL}, " BioGptForCausalLM TrOCRForCausalLM ", false},
    {"embeddings.weight", {"pred_layer.proj.weight"}, {NULL}, " FlaubertWithLMHeadModel XLMWithLMHeadModel ", false},
    {"shared.weight",
     {"lm_head.weight", "text_decoder.embed_tokens.weight", "text_encoder.embed_tokens.weight"},
     {NULL},
     " SeamlessM4TForTextToText SeamlessM4Tv2ForTextToText ",
     false},
    {"tok_embeddings.weight",
     {"decoder.weight"},
     {NULL},
     " ModernBertDecoderForCausalLM ModernBertForMaskedLM ",
     false},
    {"word_embeddings.weight", {"lm_head.decoder.weight"}, {NULL}, " EsmForMaskedLM GteForMaskedLM ", false},
    {"word_embeddings.weight", {"mlm_score.decoder.weight"}, {NULL}, " BridgeTowerForMaskedLM ViltForMaskedLM ", false},
    {"word_embeddings.weight",
     {"predictions.decoder.weight"},
     {"predictions.bias", "predictions.decoder.bias"},
     " AlbertForMaskedLM AlbertForPreTraining ",
     false},
    {"embed_in.weight", {"embed_out.weight"}, {NULL}, " GPTNeoXJapaneseForCausalLM ", false},
    {"embed_tokens.weight",
     {"decoder.output_projection.weight", "encoder.embed_tokens.weight"},
     {NULL},
     " FSMTModel ",
     false},
    {"embed_tokens.weight",
     {"model.decoder.output_projection.weight", "model.encoder.embed_tokens.weight"},
     {NULL},
     " FSMTForConditionalGeneration ",
     false},
    {"embeddings.weight", {"head.weight"}, {NULL}, " RwkvForCausalLM ", false},
    {"lm_head.weight", {"transformer.tokens_embed.weight"}, {NULL}, " OpenAIGPTDoubleHeadsModel ", false},
    {"shared.weight",
     {"led.decoder.embed_tokens.weight", "led.encoder.embed_tokens.weight"},
     {NULL},
     " LEDForQuestionAnswering ",
     false},
    {"shared.weight",
     {"lm_head.weight", "led.decoder.embed_tokens.weight", "led.encoder.embed_tokens.weight"},
     {NULL},
     " LEDForConditionalGeneration ",
     false},
    {"shared.weight",
     {"lm_head.weight", "model.language_model.decoder.embed_tokens.weight",
      "model.language_model.encoder.embed_tokens.weight"},
     {NULL},
     " Florence2ForConditionalGeneration ",
     false},
    {"tok_embeddings.weight", {"lm_head.weight"}, {NULL}, " ModernVBertForMaskedLM ", false},
    {"tokens_embed.weight", {"lm_head.weight"}, {NULL}, " OpenAIGPTLMHeadModel ", false},
    {"w.weight", {"lm_head.weight"}, {NULL}, " CTRLLMHeadModel ", false},
    {"word_embedding.weight", {"lm_loss.weight"}, {NULL}, " XLNetLMHeadModel ", false},
    {"word_embeddings.weight", {"cls.predictions.decoder.weight"}, {NULL}, " LxmertForPreTraining ", false},
    {"word_embeddings.weight",
     {"decoder.word_embeddings.weight", "encoder.word_embeddings.weight"},
     {NULL},
     " ProphetNetModel ",
     false},
    {"word_embeddings.weight",
     {"lm_head.weight", "prophetnet.decoder.word_embeddings.weight"},
     {NULL},
     " ProphetNetForCausalLM ",
     false},
    {"word_embeddings.weight",
     {"lm_head.weight", "prophetnet.decoder.word_embeddings.weight", "prophetnet.encoder.word_embeddings.weight"},
     {NULL},
     " ProphetNetForConditionalGeneration ",
     false},
    {"word_embeddings.weight", {"output.weight"}, {NULL}, " GitForCausalLM ", false},
    {"word_embeddings.weight", {"vocab_projector.weight"}, {NULL}, " DistilBertForMaskedLM ", false},
};

const ckpt_tied_class *ckpt_tied_class_of(const char *class) {
  const size_t n = strlen(class);
  for (size_t i = 0; n != 0 && i < sizeof rows / sizeof *rows; i++)
    for (const char *at = rows[i].classes; (at = strstr(at, class)) != NULL; at += n)
      if (at[-1] == ' ' && at[n] == ' ') return &rows[i];
  return NULL;
}

bool ckpt_tied_class_has_none(const char *class) {
  static const char *const heads[] = {"LMHeadModel", "DoubleHeadsModel", "EncoderDecoderModel"};
  static const char *const bare[] = {"Model",
                                     "ForSequenceClassification",
                                     "ForTokenClassification",
                                     "ForQuestionAnswering",
                                     "ForQuestionAnsweringSimple",
                                     "ForMultipleChoice",
                                     "ForNextSentencePrediction",
                                     "ForImageClassification",
                                     "ForAudioClassification"};
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    if (ckpt_text_ends(class, heads[i])) return false;
  for (size_t i = 0; i < sizeof bare / sizeof *bare; i++)
    if (ckpt_text_ends(class, bare[i])) return true;
  return false;
}
