"""Inputs for the forward function of every kind of model: tokens, images, videos, spectrograms, waves, time series."""

from __future__ import annotations

import inspect
import re
from typing import Any

import torch
from torch import Tensor, nn

from sweep.tiny import VOCAB

LENGTH, TARGETS, PAD, FRAMES, SAMPLES = 12, 9, 5, 2, 2000
# A configuration that has one of these takes images in place of tokens, and runs without any.
IMAGE_TOKENS = {"image_token_id", "image_token_index", "boi_token_id", "im_start_token_id"}
FRAMES_FIRST = re.compile("parakeet|lasr|cohere_asr|canary|nemotron|granite_speech5|wav2vec2-bert|speech_to_text|fun_asr")
VIDEO = re.compile("videomae|vivit|timesformer|vjepa2")  # images of frames by the name of images
ONE_CHANNEL = re.compile("mimi|omniasr_")  # waves [batch, 1, samples]


def parameters_of(model: nn.Module) -> set[str]:
    return set(inspect.signature(model.forward).parameters)


def tokens(batch: int = 2, length: int = LENGTH, seed: int = 4) -> Tensor:
    return torch.randint(3, VOCAB - 40, (batch, length), generator=torch.Generator().manual_seed(seed))


def padding(side: str) -> Tensor:
    """A mask [batch, keys] that hides the first or last keys of the second row, or with the side "no" none."""
    mask = torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, {"left": slice(PAD), "right": slice(-PAD, None), "no": slice(0)}[side]] = 0
    return mask


def inputs_of(model: nn.Module) -> dict[str, Tensor] | None:
    """Inputs that this model's forward function takes; None if it takes none of these kinds."""
    names, config = parameters_of(model), model.config
    torch.manual_seed(4)
    text_alone = "input_ids" in names and IMAGE_TOKENS & set(vars(config))
    for name, make in MADE_BY.items():
        if name in names and not text_alone:
            return make(names, config)
    inputs: dict[str, Tensor] = {}
    if "input_ids" in names:
        inputs["input_ids"] = tokens()
        if "decoder_input_ids" in names and getattr(config, "is_encoder_decoder", False):
            inputs["decoder_input_ids"] = tokens(length=TARGETS, seed=5)
    if "pixel_values" in names and not text_alone:
        inputs["pixel_values"] = images_of(config)
    sounds = {"input_features": spectrogram_of, "input_values": wave_of}
    sound = next((name for name in sounds if name in names), None)
    if not inputs and sound:
        inputs[sound] = sounds[sound](config)
        if "decoder_input_ids" in names:
            inputs["decoder_input_ids"] = tokens(length=TARGETS, seed=5)
    if "bbox" in names:
        inputs["bbox"] = torch.tensor([1, 2, 9, 11]).repeat(2, LENGTH, 1)
    return inputs or None


def images_of(config: Any) -> Tensor:
    """Images [batch, channels, height, width], or [batch, frames, channels, height, width] of a model of videos."""
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", getattr(vision, "crop_size", 32))
    height, width = (size, size) if isinstance(size, int) else (size.values() if isinstance(size, dict) else size[:2])
    frames = [getattr(vision, "num_frames", getattr(vision, "frames_per_clip", FRAMES))] if VIDEO.match(config.model_type) else []
    return torch.randn(2, *frames, getattr(vision, "num_channels", 3), height, width)


def patches_of(names: set[str], config: Any) -> dict[str, Tensor]:
    """Patches of two images of 4 x 4 and 2 x 4: [patches, channels of a patch]."""
    grid = torch.tensor([[1, 4, 4], [1, 2, 4]])
    channels = getattr(config, "in_channels", None) or getattr(config, "num_channels", 3)
    patch = channels * getattr(config, "temporal_patch_size", 1) * config.patch_size**2
    return {"pixel_values" if "pixel_values" in names else "hidden_states": torch.randn(24, patch), "grid_thw": grid}


def shaped_patches_of(names: set[str], config: Any) -> dict[str, Tensor]:
    """Patches of two images of 4 x 4 and 2 x 4, the second with padding: [batch, patches, channels of a patch]."""
    vision = getattr(config, "vision_config", config)
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[1, 8:] = 0
    text = {"input_ids": tokens()} if "input_ids" in names else {}
    return text | {
        "pixel_values": torch.randn(2, 16, vision.num_channels * vision.patch_size**2), "pixel_attention_mask": mask,
        "spatial_shapes": torch.tensor([[4, 4], [2, 4]]),
    }  # fmt: skip


def wave_of(config: Any) -> Tensor:
    return torch.randn(2, 1, 4 * SAMPLES) if ONE_CHANNEL.match(config.model_type) else torch.randn(2, SAMPLES)


def spectrogram_of(config: Any) -> Tensor:
    """Features [batch, bins, frames], or [batch, frames, bins] where a model takes those."""
    encoder = getattr(config, "encoder_config", config)
    found = (getattr(encoder, name, None) for name in ("num_mel_bins", "feature_projection_input_dim", "input_feat_per_channel"))
    bins, length = next((x for x in found if x), 16), getattr(config, "max_source_positions", 64)
    frames_first = FRAMES_FIRST.match(config.model_type)
    return torch.randn(2, 2 * length, bins) if frames_first else torch.randn(2, bins, 2 * length)


def series_of(names: set[str], config: Any) -> dict[str, Tensor]:
    """Values [batch, times] before and after the prediction begins, with features [batch, times, features] of each time."""
    past, future, features = config.context_length + max(config.lags_sequence), config.prediction_length, config.num_time_features
    return {
        "past_values": torch.randn(2, past), "past_time_features": torch.randn(2, past, features),
        "past_observed_mask": torch.ones(2, past), "future_values": torch.randn(2, future),
        "future_time_features": torch.randn(2, future, features),
    }  # fmt: skip


def channels_of(names: set[str], config: Any) -> dict[str, Tensor]:
    return {"past_values": torch.randn(2, config.context_length, config.num_input_channels)}


def steps_of(names: set[str], config: Any) -> dict[str, Tensor]:
    return {
        "states": torch.randn(2, LENGTH, config.state_dim), "actions": torch.randn(2, LENGTH, config.act_dim),
        "rewards": torch.randn(2, LENGTH, 1), "returns_to_go": torch.randn(2, LENGTH, 1),
        "timesteps": torch.arange(LENGTH).expand(2, -1), "attention_mask": padding("no"),
    }  # fmt: skip


def queries_of(names: set[str], config: Any) -> dict[str, Tensor]:
    return {
        "query_embeds": torch.randn(2, 5, config.hidden_size), "encoder_hidden_states": torch.randn(2, 7, config.encoder_hidden_size)
    }  # fmt: skip


def regions_of(names: set[str], config: Any) -> dict[str, Tensor]:
    return {"input_ids": tokens(), "visual_feats": torch.randn(2, 5, config.visual_feat_dim), "visual_pos": torch.rand(2, 5, 4)}


MADE_BY = {  # arguments that show which of these a model needs, the first one that its forward function has
    "past_time_features": series_of, "past_values": channels_of, "returns_to_go": steps_of, "query_embeds": queries_of,
    "visual_feats": regions_of, "grid_thw": patches_of, "spatial_shapes": shaped_patches_of,
}  # fmt: skip
