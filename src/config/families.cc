#include <algorithm>

#include "src/config/family_rules.h"

namespace isentrope {
namespace {

struct Families {
  FamilyScale scale;
  std::string_view model_types;  // separated by spaces
};

// Read in transformers 5.18 and 5.24, except `qwen`, the first Qwen. A family belongs here once its
// attention's `scaling` and everything that multiplies its q or k were read.
constexpr Families kFamilies[] = {
    {FamilyScale::one,
     "dia dia_decoder dia_encoder diffusion_gemma diffusion_gemma_text embedding_gemma2 "
     "embedding_gemma2_text gemma3n gemma3n_text gemma4 gemma4_text gemma4_unified "
     "gemma4_unified_text gpt_neo longt5 mt5 pix2struct pix2struct_text_model pop2piano "
     "switch_transformers t5 udop umt5 "},
    {FamilyScale::query_pre_attn_scalar,
     "gemma2 gemma3 gemma3_text step3p5 step3p7 t5_gemma_module t5gemma t5gemma2 "
     "t5gemma2_decoder t5gemma2_encoder t5gemma2_text vaultgemma "},
    {FamilyScale::attention_multiplier,
     "granite granite4_vision_text granite_docling granite_docling_text granite_swa "
     "granitemoe granitemoe_swa granitemoehybrid granitemoeshared hyperclovax "},
    {FamilyScale::key_multiplier, "falcon_h1 "},
    {FamilyScale::qk_scale_factor, "muse_glimmer muse_glimmer_text muse_spark muse_spark_text "},
    {FamilyScale::attn_softmax_scale, "mpt "},
    {FamilyScale::scale_attn_weights, "decision_transformer gpt-sw3 gpt2 gpt_bigcode imagegpt "},
    {FamilyScale::disentangled, "deberta deberta-v2 sew-d "},
    {FamilyScale::half_dim, "zamba zamba2 "},
    {FamilyScale::cosine, "swin2sr swinv2 "},
    {FamilyScale::beam, "beam "},
    {FamilyScale::mistral_large_4, "mistral_large4 mistral_large4_text "},
    {FamilyScale::inverse_dim, "inkling_mm_model inkling_text "},
    {FamilyScale::inkling_2, "inkling2 inkling2_loop inkling2_loop_text inkling2_text "},
    {FamilyScale::mscale,
     "axk1 axk2 bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite "
     "glm_moe_dsa hy_v4 hy_v4_vl hy_v4_vl_text minicpm3 mistral4 youtu "},
    {FamilyScale::lora_scales, "dots3_note dots3_note_text longcat_flash "},
    {FamilyScale::tuned_temperature, "llama4 llama4_text "},
    {FamilyScale::phimoe, "phimoe "},
    {FamilyScale::standard,
     "afmoe aimv2 aimv2_text_model aimv2_vision_model albert align align_text_model "
     "align_vision_model altclip altclip_text_model altclip_vision_model apertus apertus1p5 "
     "apertus1p5_text arcee aria aria_text audio-spectrogram-transformer audioflamingo3 "
     "audioflamingo3_encoder autoformer aya_vision bamba bark bart beit bert bert-generation "
     "big_bird bigbird_pegasus biogpt bitnet blenderbot blenderbot-small blip blip-2 "
     "blip_2_qformer blip_2_vision_model blip_text_model blip_vision_model bloom blt "
     "blt_global_transformer blt_local_decoder blt_local_encoder blt_patcher bridgetower "
     "bridgetower_text_model bridgetower_vision_model bros camembert canary canary_decoder "
     "canine chameleon chinese_clip chinese_clip_text_model chinese_clip_vision_model clap "
     "clap_audio_model clap_text_model clip clip_text_model clip_vision_model clipseg "
     "clipseg_text_model clipseg_vision_model clvp clvp_decoder clvp_encoder codegen cohere "
     "cohere2 cohere2_moe cohere2_vision cohere_asr cohere_compass cohere_compass_text "
     "cohere_compass_vision conditional_detr convbert cosmos3_edge cosmos3_edge_text "
     "cosmos3_edge_vision cosmos3_omni cpmant csm csm_depth_decoder_model ctrl cwm d_fine "
     "data2vec-audio data2vec-text data2vec-vision dbrx deepseek_ocr2 deepseek_ocr2_encoder "
     "deepseek_ocr2_sam_vision_model deepseek_ocr2_text deepseek_ocr2_vision deepseek_v4 "
     "deepseek_vl deformable_detr deimv2 deit depth_pro detr diffllama dinov2 "
     "dinov2_with_registers dinov3_vit distilbert doge donut-swin dots1 dpr dpt edgetam "
     "edgetam_mask_decoder edgetam_video_mask_decoder edgetam_vision_model efficientloftr "
     "electra emu3 emu3_text_model eomt eomt_dinov3 ernie ernie4_5 ernie4_5_moe "
     "ernie4_5_vl_moe ernie4_5_vl_moe_text ernie4_5_vl_moe_vision esm esmc eurobert exaone "
     "exaone4 exaone4_5 exaone4_5_vision exaone_moe falcon flaubert flava flava_image_model "
     "flava_multimodal_model flava_text_model flex_olmo flint florence_vision fsmt "
     "fun_asr_nano fun_asr_nano_encoder fuyu gemma git git_vision_model glm glm4 glm46v "
     "glm4_moe glm4v glm4v_moe glm4v_moe_text glm4v_moe_vision glm4v_text glm4v_vision "
     "glm5_next glm5_next_text glm5_next_vision glm_image glm_image_text glm_image_vision "
     "glm_ocr glm_ocr_text glm_ocr_vision glmasr glmasr_encoder glmga glpn got_ocr2_vision "
     "gpt_neox gpt_neox_japanese gpt_oss gptj gradium_phonon_tts granite_docling_vision "
     "granite_speech5_ctc granite_speech5_encoder grounding-dino gte helium hiera "
     "higgs_audio_v2 hrm_text hubert hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl "
     "hunyuan_vl_text hunyuan_vl_vision hy_v3 hy_v4_vl_vision hyperclovax_vision_v2 ibert "
     "idefics idefics2 idefics2_perceiver idefics2_vision idefics3 idefics3_vision "
     "idefics_perciever idefics_vision ijepa informer instructblip instructblip_qformer "
     "instructblip_vision_model instructblipvideo instructblipvideo_qformer "
     "instructblipvideo_vision_model internlm3 internvl internvl_vision iquestcoder jais2 "
     "jamba janus jetmoe jina_embeddings_v3 kimi_k25 kimi_k25_vision kimi_linear kolibri1 "
     "kosmos-2 kosmos-2.5 kosmos_2_5_text_model kosmos_2_text_model kosmos_2_vision_model "
     "kyutai_speech_to_text laguna lara_mini lasr_ctc lasr_encoder layoutlm layoutlmv2 "
     "layoutlmv3 led lfm2 lfm2_moe lfm2_vl lfm3 lfm3_vl lfm3_vl_vision lightglue lighton_ocr "
     "llama llava llava_next llava_next_video llava_onevision longformer luke lw_detr "
     "lw_detr_vit lxmert m2m_100 marian markuplm mask2former maskformer maskformer-swin "
     "mbart megatron-bert mellum metaclip_2 metaclip_2_text_model metaclip_2_vision_model "
     "mimi mimi_decoder mimi_encoder mimo_v2_flash minicpm_ocr minicpm_ocr_vision "
     "minicpmv4_6 minicpmv4_6_vision minicpmv4_7 minicpmv4_7_vision minimax minimax_m2 "
     "minimax_m3_vl minimax_m3_vl_text minimax_m3_vl_vision ministral ministral3 mistral "
     "mistral3 mixtral mlcd mlcd_vision_model mllama mllama_text_model mllama_vision_model "
     "mm-grounding-dino mobilebert mobilevit modernbert modernbert-decoder modernvbert "
     "molmo2 molmo2_adapter molmo2_text molmo2_vision moonshine moonshine_streaming "
     "moonshine_streaming_encoder moshi moshi_depth moss_transcribe_diarize "
     "moss_transcribe_diarize_audio mpnet muse_glimmer_assistant musicflamingo musicgen "
     "musicgen_decoder musicgen_melody musicgen_melody_decoder mvp nanochat nemo_speechlm "
     "nemotron nemotron3_5_asr nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_audio "
     "nemotron3_5_transcribe_word_timestamp nemotron3_diarization "
     "nemotron3_diarization_audio nemotron_asr_streaming nemotron_asr_streaming_encoder "
     "nemotron_h neomme neucodec nllb-moe nomic_bert olmo olmo2 olmo3 olmo_hybrid olmoe "
     "omdet-turbo omniasr omniasr_audio omniasr_ctc openai-gpt openai_privacy_filter opt "
     "ovis2 ovis2_vision owlv2 owlv2_text_model owlv2_vision_model owlvit owlvit_text_model "
     "owlvit_vision_model paddleocr_vl paddleocr_vl_text paddleocr_vl_vision paligemma "
     "parakeet_ctc parakeet_encoder parakeet_rnnt parakeet_tdt patchtst pe_audio "
     "pe_audio_encoder pe_audio_video pe_audio_video_encoder pe_video pe_video_encoder "
     "pegasus pegasus_x perceiver persimmon phi phi3 phi4_multimodal phi4_multimodal_audio "
     "phi4_multimodal_vision pi0 pixio pixtral plbart pocket_tts pp_doclayout_v3 "
     "pp_doclayout_v4 pp_formulanet pp_formulanet_text pp_formulanet_vision "
     "pp_ocrv5_mobile_rec pp_ocrv5_server_rec pp_ocrv6_small_rec prophetnet pvt pvt_v2 "
     "qianfan_ocr qianfan_ocr_vision qwen qwen2 qwen2_5_omni qwen2_5_omni_audio_encoder "
     "qwen2_5_omni_dit qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_omni_thinker "
     "qwen2_5_omni_vision_encoder qwen2_5_vl qwen2_5_vl_text qwen2_5_vl_vision qwen2_audio "
     "qwen2_audio_encoder qwen2_moe qwen2_vl qwen2_vl_text qwen2_vl_vision qwen3 qwen3_5 "
     "qwen3_5_moe qwen3_5_moe_text qwen3_5_moe_vision qwen3_5_text qwen3_5_vision qwen3_asr "
     "qwen3_asr_encoder qwen3_moe qwen3_next qwen3_omni_moe qwen3_omni_moe_audio_encoder "
     "qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text qwen3_omni_moe_text "
     "qwen3_omni_moe_thinker qwen3_omni_moe_vision_encoder qwen3_vl qwen3_vl_moe "
     "qwen3_vl_moe_text qwen3_vl_moe_vision qwen3_vl_text qwen3_vl_vision qwen4_exp "
     "qwen4_exp_text qwen4_exp_vision radio recurrent_gemma rembert rf_detr rf_detr_dinov2 "
     "roberta roberta-prelayernorm roc_bert roformer rt_detr rt_detr_v2 sam2_mask_decoder "
     "sam2_video_mask_decoder sam3 sam3_detr_decoder sam3_detr_encoder sam3_geometry_encoder "
     "sam3_lite_text sam3_lite_text_detr_decoder sam3_lite_text_detr_encoder "
     "sam3_lite_text_geometry_encoder sam3_lite_text_mask_decoder sam3_lite_text_text_model "
     "sam3_mask_decoder sam3_tracker sam3_tracker_mask_decoder sam3_tracker_video "
     "sam3_tracker_video_mask_decoder sam3_video sam3_vision_model sam3_vit_model sapiens2 "
     "sarvam_mla sarvam_moe seamless_m4t seamless_m4t_v2 seed_oss segformer sew siglip "
     "siglip2 siglip2_text_model siglip2_vision_model siglip_text_model siglip_vision_model "
     "slanext slanext_vision smollm3 smolvlm smolvlm_vision solar_open speech_to_text "
     "speecht5 splinter squeezebert stablelm starcoder2 swin table-transformer tapas "
     "time_series_transformer timesformer tipsv2 tipsv2_text_model tipsv2_vision_model trocr "
     "tvp ultrabert ultravbert unispeech unispeech-sat unlimited_ocr_sam_vision_model "
     "unlimited_ocr_text unlimited_ocr_vision unlimited_ocr_vision_encoder vibevoice "
     "vibevoice_asr video_llama_3 video_llama_3_vision video_llava videomae videomt vilt "
     "vipllava vision-text-dual-encoder visual_bert vit vit_mae vit_msn vitdet "
     "vitpose_backbone vits vivit vjepa2 voxtral voxtral_encoder voxtral_realtime "
     "voxtral_realtime_encoder voxtral_realtime_text wav2vec2 wav2vec2-bert "
     "wav2vec2-conformer wavlm whisper xclip xclip_text_model xclip_vision_model xcodec "
     "xcodec2 xglm xlm xlm-roberta xlm-roberta-xl xlnet xmod yolos zaya zoedepth "},
};

static_assert(std::ranges::none_of(kFamilies, [](const Families& families) {
  // A name must not be broken at its hyphen.
  return families.model_types.find("- ") != std::string_view::npos;
}));

}  // namespace

std::optional<FamilyScale> family_scale(std::string_view model_type) {
  if (model_type.empty() || model_type.find(' ') != std::string_view::npos) return {};
  for (const Families& families : kFamilies) {
    const std::string_view names = families.model_types;
    for (std::size_t at = names.find(model_type); at != std::string_view::npos;
         at = names.find(model_type, at + 1)) {
      const std::size_t end = at + model_type.size();
      const bool begins = at == 0 || names[at - 1] == ' ';
      if (begins && (end == names.size() || names[end] == ' ')) return families.scale;
    }
  }
  return {};
}

}  // namespace isentrope
