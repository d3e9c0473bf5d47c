"""QK-clip: keeps the largest attention logit of every head below a threshold while a model trains.

    clip = isentrope.QKClip(model, tau=100.0)          # before the first step, after the model is on its device
    for batch in batches:
        model(batch).loss.backward()
        optimizer.step()
        clip.step()
        optimizer.zero_grad()

With transformers' Trainer: trainer.add_callback(isentrope.models.qk_clip.callback(tau=100.0)). Any other framework:
optimizer.register_step_post_hook(clip.step).

Source: Kimi K2 (arXiv 2507.20534), algorithm 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from isentrope._core.values import checked_number
from isentrope.models.attention_layers import recognised, unknown_attentions
from isentrope.models.maxima import Maxima, end_reading, is_watched, unwatch, watch
from isentrope.models.projections import Projections, refuse_norms
from isentrope.sdpa import observed

Finder = Callable[[str, nn.Module], Projections | None]


class QKClip:
    """Scales the query and key projections of each head whose largest logit exceeded tau, after each step (Kimi K2).

    gamma = tau / largest logit since the last step. Every logit of the head is afterwards gamma times what it was:

        heads with keys of their own    query and key rows are multiplied by sqrt(gamma)
        grouped queries                 query rows by gamma, so that other heads of the group keep their logits
        latent attention (MLA)          rows without rotation by sqrt(gamma), rotated query rows by gamma

    Biases are scaled with their rows. Logits are `Statistics.max_logit`, after the scale and the bias of positions; only
    the part without bias scales by gamma. Heads with non-finite logits stay. With a soft-cap c, logits are those before
    it: s = c artanh(z / c) from z = c tanh(s / c). Float32 tells s up to about 8 c, and a larger one counts as that, so a
    larger tau clips nothing. A soft-cap together with a bias or a float mask is a ValueError in the call.

    The forward passes of modules in training mode are read: isentrope's functions, transformers with
    attn_implementation "isentrope" or "sdpa", torch's `scaled_dot_product_attention` and `nn.MultiheadAttention`.
    Inside these modules torch's function is computed by isentrope, because torch's kernels do not return the largest
    logit. Nothing waits for a device, unless weights are on the CPU and their calls on a GPU.

    Modules whose projections are frozen when the clip is made are neither read nor scaled. A projection that trains in
    part, as with adapters, is a ValueError: a checkpoint of adapters needs the weights that it was trained on. A later
    clip of the same model takes the place of an earlier one.
    """

    def __init__(self, model: nn.Module, tau: float = 100.0, *, projections: Finder | None = None, group: Any = None) -> None:
        """model: on its device, wrapped or not, before it is compiled code that ran.
        tau: the threshold, > 0.
        projections: maps the name of a module and the module to its `Projections`, or None for a module without attention;
            `isentrope.models.projections` makes them. None: those of transformers' models and `nn.MultiheadAttention`; then
            a warning names attention modules whose projections are not known.
        group: the process group of the ranks that have the same layers, over which maxima are reduced. None: all ranks.

        Raises TypeError if model is no module, and ValueError if tau is not positive and finite. Raises ValueError if
        no module has projections that train, or one has a module that normalises its queries and keys. Raises it too for
        projections that are shared, quantized or on meta. A norm by a function in `forward` cannot be seen: leave QKClip
        out there.
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"[QKClip] model must be a torch.nn.Module; got {type(model).__name__}")
        self.tau = checked_number("QKClip", "tau", tau)
        if not 0 < self.tau < float("inf"):
            raise ValueError(f"[QKClip] tau must be positive and finite; got {tau}")
        self._group = group
        self._layers: dict[str, Projections] = {}
        self._modules: list[nn.Module] = []
        frozen: list[nn.Module] = []
        for name, module in model.named_modules():
            if not _FORWARDING.isdisjoint(module._modules):
                continue
            found = projections(name, module) if projections else recognised(module)
            if found is not None and found.frozen:
                frozen.append(module)
            elif found is not None:
                refuse_norms(name, module)
                plain = _plain_name(name)
                self._layers[name if plain in self._layers else plain] = found
                self._modules.append(module)
        if frozen and not self._layers:
            raise ValueError("[QKClip] model must have attention modules whose projections to scale train; got frozen ones alone")
        if not self._layers:
            raise ValueError(
                "[QKClip] model must have attention modules whose projections are known; got none. Pass projections=, for example "
                "isentrope.models.projections.named(q='wq', k='wk', head_dim=64)"
            )
        self._check_parameters()
        if projections is None:
            _warn_of_unknown(model, self._modules + frozen)
        self._maxima = [Maxima(found.heads, found.weight, found.first_head) for found in self._layers.values()]
        self.largest = self._largest_of_layers(self._maxima[0].largest.device)
        """Largest logits before the last step, [heads of all layers], on the device; -inf before the first step."""
        self.clipped = torch.zeros_like(self.largest, dtype=torch.int64)
        """Steps that scaled each head, in the same order."""
        self._warned: set[str] = set()
        self._hooks = watch(zip(self._modules, self._maxima))
        observed.observe()

    def _check_parameters(self) -> None:
        seen: set[int] = set()
        for name, projections in self._layers.items():
            for tensor, _ in (pair for part in projections.parts for pair in part.parameters()):
                if id(tensor) in seen:
                    raise ValueError(f"[QKClip] each projection must belong to one attention; got one of {name} twice")
                if not tensor.requires_grad:
                    raise ValueError(
                        f"[QKClip] what QK-clip scales in {name or 'the model'} must train as a whole, or not at all; got a frozen "
                        "parameter: merge adapters first, or pass projections= that returns None for this module"
                    )
                if tensor.is_meta:
                    raise ValueError(f"[QKClip] parameters must have data; got those of {name} on the meta device")
                seen.add(id(tensor))

    @torch.no_grad()
    def step(self, *_: Any) -> None:
        """Scales the heads whose largest logit since the last step exceeded tau, and begins to gather anew.

        Every rank of the group must call it. Arguments are ignored, so it can be an optimizer's post-step hook.

        Modules that ran no forward pass since the last step stay as they are: unused heads, experts without tokens, and
        towers in evaluation mode. Warns once for a module that was read before and then made no call that can be read.

        Raises ValueError for a module that ran without ever making such a call. Raises it too if no module ever ran in
        training mode, or if a later QKClip reads the model.
        """
        end_reading()  # Ctrl-C in a forward pass may have left a module
        self._check_calls()
        largest = self._largest_of_layers(self.largest.device)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX, self._group)
        gamma = torch.where(largest.isfinite() & (largest > self.tau), self.tau / largest, 1)
        for projections, factors in zip(self._layers.values(), gamma.split([len(each.largest) for each in self._maxima])):
            for part in projections.parts:
                part.scale(factors)
        for maxima in self._maxima:
            maxima.reset()
        self.largest.copy_(largest)
        self.clipped += gamma < 1

    def _check_calls(self) -> None:
        layers = list(zip(self._layers, self._modules, self._maxima))
        if self._hooks and not all(is_watched(module, maxima) for _, module, maxima in layers):
            raise ValueError("[QKClip.step] a model must have one QKClip; got a later one: call the step of that one")
        if never := [name for name, _, maxima in layers if maxima.missed and not maxima.called]:
            raise ValueError(
                "[QKClip.step] attention must be computed by isentrope's functions, torch's scaled_dot_product_attention, or "
                'transformers with attn_implementation="isentrope" or "sdpa"; got forward passes without such a call of '
                f"{_list_of(never)}: pass projections= that returns None for modules to leave alone"
            )
        if not any(maxima.called for maxima in self._maxima):
            raise ValueError(
                f"[QKClip.step] attention must run in training mode before the step; got no forward pass of {_list_of(list(self._layers))}"
            )
        if partly := [name for name, _, maxima in layers if maxima.missed and name not in self._warned]:
            self._warned.update(partly)
            warnings.warn(
                f"[QKClip.step] forward passes of {_list_of(partly)} made no attention call that can be read: their logits do not count",
                stacklevel=4,
            )

    def _largest_of_layers(self, device: torch.device) -> Tensor:
        """Returns the largest logits of all layers, which may be on different devices."""
        return torch.cat([maxima.largest.to(device) for maxima in self._maxima])

    def summary(self) -> dict[str, float]:
        """Returns numbers for a log, waiting for the device.

        They are the largest logit before the last step, and the heads that this step and that any step has scaled."""
        return {
            "qk_clip/max_logit": self.largest.max().item(),
            "qk_clip/clipped": float((self.largest > self.tau).sum()),
            "qk_clip/ever_clipped": float((self.clipped > 0).sum()),
        }

    def heads(self) -> dict[str, float]:
        """Returns the largest logit of each head before the last step, for a log: "qk_clip/layers.0.attend/head0/max_logit"."""
        values = iter(self.largest.tolist())
        return {
            f"qk_clip/{name}/head{head}/max_logit": next(values)
            for name, projections in self._layers.items()
            for head in range(projections.heads)
        }

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that a resumed run needs, by module: this rank's maxima, and counts of scaled steps."""
        sizes = [len(maxima.largest) for maxima in self._maxima]
        return {
            "largest": {name: maxima.largest.clone() for name, maxima in zip(self._layers, self._maxima)},
            "clipped": dict(zip(self._layers, self.clipped.clone().split(sizes))),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores `state_dict()`. Raises ValueError if its modules or their heads are not those of the model."""
        shapes = {name: tuple(x.shape) for name, x in state["largest"].items()}
        wanted = {name: (projections.heads,) for name, projections in self._layers.items()}
        if shapes != wanted or {name: tuple(x.shape) for name, x in state["clipped"].items()} != wanted:
            raise ValueError(f"[QKClip.load_state_dict] state must be that of {list(wanted)}; got {list(shapes)}")
        for name, maxima in zip(self._layers, self._maxima):
            maxima.largest.copy_(state["largest"][name])
        self.clipped.copy_(torch.cat([state["clipped"][name] for name in self._layers]))

    def remove(self) -> None:
        """Stops reading the model. Calling it again does nothing."""
        end_reading()
        if not self._hooks:
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        for module, maxima in zip(self._modules, self._maxima):
            unwatch(module, maxima)
        observed.leave()


# Children of torch's wrappers that forward attributes: the wrapper looks like the attention in it.
_FORWARDING = frozenset(("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"))


def _list_of(names: list[str]) -> str:
    return ", ".join(name or "the model" for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _warn_of_unknown(model: nn.Module, known: list[nn.Module]) -> None:
    ids = set(map(id, known))
    unknown = unknown_attentions(model, [name for name, module in model.named_modules() if id(module) in ids])
    if unknown:
        kinds = sorted({type(model.get_submodule(name)).__name__ for name in unknown})
        warnings.warn(
            f"[QKClip] projections of {_list_of(unknown)} ({', '.join(kinds)}) are not known, so this attention is not read: "
            "pass projections= to read it too",
            stacklevel=3,
        )


def _plain_name(name: str) -> str:
    """Returns the name without prefixes of torch's wrappers, so that a state fits the model however it is wrapped."""
    return ".".join(part for part in name.split(".") if part not in _FORWARDING | {"module"})


def callback(tau: float = 100.0, **options: Any) -> Any:
    """Returns a `TrainerCallback` that runs `QKClip(model, tau, **options)` after each step and logs its summary.

    Each training has a clip of its own, `clip`, which stays readable after it; "qk_clip/ever_clipped" is of this training.
    As for `monitor.callback`, reporters see the summary if this callback comes before theirs.
    """
    from transformers import TrainerCallback

    class QKClipCallback(TrainerCallback):
        clip: QKClip | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, model: nn.Module, **_: Any) -> None:  # type: ignore[override]
            if self.clip is not None:
                self.clip.remove()  # a training that ended with an error left it
            self.clip = QKClip(model, tau, **options)

        def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.clip.step()

        def on_log(self, args: Any, state: Any, control: Any, logs: dict | None = None, **_: Any) -> None:
            if logs is not None and self.clip is not None:
                summary = self.clip.summary()
                logs.update(summary)
                if state.log_history:
                    state.log_history[-1].update(summary)

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.clip.remove()

    return QKClipCallback()
