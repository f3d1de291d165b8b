# SPDX-License-Identifier: Apache-2.0
"""What a program changed in its own process beside its module, where whoever loads it would have to live with that.

Types and devices that everybody's tensors get, seeds, switches, functions of torch replaced: nothing of this shows in
an answer, all of it is somebody else's wrong answer once the program stands in a larger one. It is the process's own
word, looked at once; who lies about it must mean to.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import ctypes
import functools
import logging
import math
import operator
import os
import pickle
import random
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from kernelwright.judge import initial, parts

_LIBRARIES: dict[str, Any] = {
    "builtins": builtins, "math": math, "torch": torch, "torch.nn.functional": torch.nn.functional,
    "torch.cuda": torch.cuda, "torch.Tensor": torch.Tensor, "torch.autograd.Function": torch.autograd.Function,
    "torch.linalg": torch.linalg, "torch.fft": torch.fft, "torch.special": torch.special,
    "torch.nn.init": torch.nn.init, "torch.nn.utils": torch.nn.utils, "torch.autograd": torch.autograd,
    "torch.distributions": torch.distributions, "torch.backends": torch.backends, "torch._C": torch._C,
    **{
        f"{library.__name__}.{name}": found
        for library in (torch.nn, torch.optim, torch.distributions)
        for name, found in vars(library).items()
        if isinstance(found, type)
    },
}  # fmt: skip
_STANDARD = {one.__name__: one for one in (copy, functools, logging, operator, os, pickle, random, time)}
"""Of Python's own library, by their public names: a ``copy.deepcopy`` that gives back what it was given was granted."""
_LIBRARIES |= _STANDARD
_OWN = f"{Path(torch.__file__).parent}/"
_TINY = 1e-40
"""A denormal number in float32."""
_DENORMAL = "denormal numbers"
_FLUSHED = (
    "; they are flushed to zero by torch.set_flush_denormal, or by what g++ links in for -ffast-math and -Ofast "
    "(crtfastmath.o): compile with it but link in a command without it, or name the parts that are right here, such as "
    "-fno-math-errno -fno-trapping-math -fno-signed-zeros -fassociative-math"
)
"""Seen with g++ 12, which links it in for -funsafe-math-optimizations too and knows no -mno-daz-ftz."""

_ONES = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
_SIDES = torch.tensor([0.7, -0.7, 0.3, -0.3], dtype=torch.float64) * 2.0**-52
"""Sums that each direction of rounding takes elsewhere."""
_LIKE = torch.tensor([[-1.25, 0.5, 2.0], [0.75, -0.125, 1.5]])
_ANSWERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: getattr(torch, name) for name in ("abs", "exp", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "relu")},
    **{name: getattr(torch.nn.functional, name) for name in ("gelu", "silu", "softplus", "normalize")},
    "softmax": lambda x: torch.softmax(x, -1), "log_softmax": lambda x: torch.log_softmax(x, -1),
    "add": lambda x: x + 1.5, "mul": lambda x: x * 1.5, "div": lambda x: x / 3.0, "pow": lambda x: x**3,
    "mm": lambda x: x @ x.T, "linear": lambda x: torch.nn.functional.linear(x, x, x[0, :2]),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (3,)), "cumsum": lambda x: x.cumsum(-1),
    "mean": lambda x: x.mean(-1), "var": lambda x: x.var(-1), "amax": lambda x: x.amax(-1), "sum": torch.sum,
    "sort": lambda x: x.sort()[0],
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "cat": lambda x: torch.cat([x, x]), "index_select": lambda x: x.index_select(1, torch.tensor([2, 0])),
}  # fmt: skip
"""Operators whose kernels could have been replaced where nobody sees it: asked again, they answer otherwise."""

_HOOKS = [
    held for name, held in vars(torch.nn.modules.module).items() if name.startswith("_global_") and name[-1] == "s"
]
_TRAPS = getattr(ctypes.CDLL(None), "fegetexcept", None)


def _precision(kind: str) -> str:
    """By the interface of torch 2.9 and later. Who says ``highest`` to all has what is none be ieee, which is the same
    unless something above it says otherwise."""
    found = operator.attrgetter(f"{kind}fp32_precision")(torch.backends)
    return "ieee" if found == "none" else str(found)


_PRECISIONS: dict[str, Callable[[], object]] = {
    "the precision of float32 products": torch.get_float32_matmul_precision,
    "TF32 in cuBLAS": lambda: torch.backends.cuda.matmul.allow_tf32,
    "TF32 in cuDNN": lambda: torch.backends.cudnn.allow_tf32,
    "sums of float16 products": lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    "sums of bfloat16 products": lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    "float16 accumulation": lambda: torch.backends.cuda.matmul.allow_fp16_accumulation,
    "the use of oneDNN": lambda: torch.backends.mkldnn.enabled,
    "the use of cuDNN": lambda: torch.backends.cudnn.enabled,
}
"""What decides how exact everybody's products are, and how fast."""
_KINDS = ("", *(f"{of}." for of in ("cuda.matmul", "cudnn", "cudnn.conv", "cudnn.rnn")))
_KINDS += tuple(f"mkldnn.{of}" for of in ("", "matmul.", "conv.", "rnn."))
_PRECISIONS |= {f"torch.backends.{kind}fp32_precision": functools.partial(_precision, kind) for kind in _KINDS}


def settings() -> dict[str, str]:
    """The switches of this process, by name."""
    return {
        "the default type": str(torch.get_default_dtype()),
        "the default device": str(torch.get_default_device()),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        _DENORMAL: str(bool(torch.full((1,), _TINY, dtype=torch.float32, device="cpu").mul_(1.0) != 0.0)),
        "the recording of gradients": str(torch.is_grad_enabled()),
        "what autocast makes": str([torch.get_autocast_dtype(kind) for kind in ("cpu", "cuda")]),
        "what autocast keeps": str(torch.is_autocast_cache_enabled()),
        "checks of distributions": _checks(),
        "what is logged": f"above {logging.root.manager.disable}",
        "autocast": str([torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")]),
        "the rounding of floats": str((_ONES + _SIDES).tolist()),
        "the working directory": _working(),
        "the mask of new files": oct(_masked()),
        IGNORED: _status("SigIgn"),
        "what Ctrl-C does": getattr(signal.getsignal(signal.SIGINT), "__name__", "nothing of Python's"),
        "traps of floats": str(_TRAPS() if _TRAPS else 0),
        THREADS: str(torch.get_num_threads()),
        "its priority": str(os.getpriority(os.PRIO_PROCESS, 0)),
        "inference mode": str(torch.is_inference_mode_enabled()),
        "hooks of all modules": str(sum(map(len, _HOOKS))),
        "hooks on what is saved for gradients": _saved(),
        "modes of all operators": str(torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()),
        "the detection of anomalies": str(torch.is_anomaly_enabled()),
        **{name: _said(read) for name, read in _PRECISIONS.items()},
        "the current stream": str(torch.cuda.current_stream()) if torch.cuda.is_initialized() else "",
    }


def _saved() -> str:
    """Whether what operators save for gradients goes through somebody's hands, as it does while hooks are entered."""
    try:
        return str(torch._C._autograd._top_saved_tensors_default_hooks(True) is not None)  # noqa: FBT003 - as torch asks
    except (AttributeError, TypeError):
        return "not known"


def _checks() -> str:
    """Torch's compiler switches them off itself as soon as it is imported, by checkpoints and flex_attention too."""
    return str(torch.distributions.Distribution._validate_args or "torch._dynamo" in sys.modules)


def _working() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return "gone"


def _masked() -> int:
    """As the kernel says: asking by setting it would change it for other threads meanwhile, where a judge has some."""
    if known := _status("Umask"):
        return int(known, 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _status(name: str) -> str:
    """What the kernel says of this process; empty where it does not."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return line.split()[1]
    return ""


def _otherwise(before: str, now: str) -> bool:
    """Whether more signals are ignored than were, by masks as the kernel writes them, or SIGPIPE no longer is. Others
    may be caught now: Triton's compiler catches SIGXFSZ, which Python ignores, SIGINT and SIGTERM, which a confined
    program ignores, and SIGHUP and SIGQUIT, which one does that nohup started in the background. 32 and 33 are glibc's
    own: who was spawned by make ignores them until it starts a thread."""
    was, is_ = (int(mask or "0", 16) & ~(0b11 << 31) for mask in (before, now))
    return bool(is_ & ~was or was & ~is_ & 1 << signal.SIGPIPE - 1)


def _answers() -> dict[str, torch.Tensor]:
    """What common operators make of a few numbers."""
    with torch.no_grad(), torch.device("cpu"), torch.autocast("cpu", enabled=False):
        return {name: function(_LIKE.clone()).nan_to_num(7.0) for name, function in _ANSWERS.items()}


def _said(read: Callable[[], object]) -> str:
    try:
        return str(read())
    except (RuntimeError, AttributeError):  # torch 2.9 and later refuse to read one where the other interface set it
        return "set in two ways"


def _twisters() -> dict[str, tuple[int, ...]]:
    """Where the generators of Python and, where it is loaded, numpy stand: 624 words and how many of them are drawn."""
    found: dict[str, tuple[int, ...]] = {"random": random.getstate()[1]}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, words_, place, *_ = numpy.random.get_state()
        found |= {"numpy": (*map(int, words_), place)} if kind == "MT19937" else {}
    return found


def _follows(before: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """Whether a generator comes from one state to another by drawing, not by being seeded."""
    there = random.Random()  # noqa: S311 - nothing secret: it is the generator that is looked at
    there.setstate((3, before, None))
    for _ in range(TWISTS):
        if there.getstate()[1][:-1] == now[:-1]:
            return True
        there.getrandbits(32 * (len(before) - 1))
    return False


class Before:
    """How a process was before a program came into it, but for the seed: that is noted once it is constructed."""

    def __init__(self) -> None:
        self.settings, self.seed = settings(), 0
        self.twisters: dict[str, tuple[int, ...]] = {}
        self.written: set[int] = set()
        """Inputs that torch says were written to."""
        self.handed = WeakIdKeyDictionary()
        """What ``_version`` said of inputs that are handed over once more."""
        self.held = {name: _held(name) for name in _LIBRARIES}
        self.answers = _answers()
        self.begun: dict[str, tuple[str, str]] = {}
        """Parameters that begin otherwise than the reference's."""
        self.own: list[str] = []
        """Methods of its own that a larger module would not call."""

    def begins(self, module: Any, names: Sequence[str], theirs: Sequence[torch.Tensor]) -> None:
        """Note how a module's parameters begin, before weights are loaded into it, and what it does of its own."""
        self.begun, self.own = initial.otherwise(module, names, theirs), parts.own(module)

    def constructed(self) -> None:
        """A module may have seeded what it drew its weights from, and whoever imports a file sees how many threads that
        asks for; calls leave both as they are."""
        self.seed, self.settings[THREADS] = torch.initial_seed(), str(torch.get_num_threads())
        self.twisters = _twisters()

    def changed(self) -> dict[str, str]:
        """What is otherwise now, by name. Torch replaces some of its own functions as it loads more of itself."""
        found = {name: value for name, value in settings().items() if value != self.settings[name]}
        if IGNORED in found and not _otherwise(self.settings[IGNORED], found[IGNORED]):
            del found[IGNORED]
        found |= {f"{INPUT} {index}": "written to, whatever was put back" for index in sorted(self.written)}
        if torch.initial_seed() != self.seed:
            found[SEED] = "drawn from anew"
        now = _twisters()
        found |= {
            f"{SEED} in {name}": "drawn from anew"
            for name, was in self.twisters.items()
            if not _follows(was, now.get(name, ()))
        }
        return found | self._answered_otherwise() | self._replaced()

    def _replaced(self) -> dict[str, str]:
        found = {}
        for name, before in self.held.items():
            now = _held(name)
            for key in now.keys() | before.keys():
                was, function = before.get(key), now.get(key)
                if function is not was and not _torchs(function):
                    was = was if key in before else _inherited(_LIBRARIES[name], key)
                    if callable(was) or isinstance(was, classmethod):
                        found[f"{name}.{key}"] = "replaced"
        return found

    def _answered_otherwise(self) -> dict[str, str]:
        try:
            now = _answers()
        except Exception as error:  # noqa: BLE001 - what stands in their place can raise anything
            return {"common operators of torch": f"raise {type(error).__name__}"}
        pairs = ((name, now[name], was) for name, was in self.answers.items())
        return {
            f"what torch makes of {name}": "another answer"
            for name, here, was in pairs
            if here.shape != was.shape or not torch.allclose(here.double(), was.double(), rtol=1e-3, atol=1e-3)
        }


def called(before: Before | None, leaves: Sequence[torch.Tensor]) -> None:
    """Note what the inputs of a call say once it is over."""
    if before is not None:
        was = before.handed
        before.written |= {at for at, leaf in enumerate(leaves) if leaf._version > was.get(leaf, UNTOUCHED)}


def kept(before: Before | None, call: tuple[Any, Any, list[torch.Tensor]], *, grad: bool) -> Any:
    """This call for the next one, whose values are others then, as a loop writes them into one tensor: every second
    time, but where gradients are asked for. Torch is told that they were written to. Who knows an input by being the
    same object answers with what is past; None in all other times, and the next call's are objects never seen."""
    if before is None or grad or os.urandom(1)[0] & 1:
        return None
    torch.autograd.graph.increment_version(call[2])
    for leaf in call[2]:
        before.handed[leaf] = leaf._version
    return call


def _held(name: str) -> dict[str, Any]:
    """What one of ``_LIBRARIES`` has by name."""
    held = vars(_LIBRARIES[name])
    return {key: value for key, value in held.items() if key[0] != "_"} if name in _STANDARD else dict(held)


def _inherited(library: Any, key: str) -> Any:
    """What a class has of that name from others; a module has nothing."""
    return next((vars(kind)[key] for kind in getattr(library, "__mro__", ())[1:] if key in vars(kind)), None)


def _torchs(function: Any) -> bool:
    """Whether its code lies in torch's folder; where it has none, whether it says that it is torch's."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is not None:
        return str(code.co_filename).startswith(_OWN)
    return str(getattr(function, "__module__", "") or "").startswith("torch")


SEED, THREADS, INPUT = "the seed of everybody's random numbers", "the number of threads", "input"
IGNORED = "signals that are ignored"
TWISTS = 2000
"""As many times 624 numbers may be drawn by calls; twenty microseconds each."""
UNTOUCHED = 1
"""What ``_version`` says of a tensor that was given its storage by ``set_``."""


def words(
    found: dict[str, Any], own: Callable[[], dict[str, str]], *, random_: bool, mutates: Collection[int] = ()
) -> str:
    """What of it a program must not leave behind; empty where that is nothing. What the reference's file did as well,
    in the judge's ``own`` process, is the task's, a task of random numbers may seed them, and one that ``mutates``
    inputs writes to them."""
    found = {name: value for name, value in found.items() if name not in {f"{INPUT} {index}" for index in mutates}}
    if not found:
        return ""
    here = own()
    wrong = [f"{name} ({value})" for name, value in found.items() if here.get(name) != value]
    wrong = [one for one in wrong if not (random_ and one.startswith(SEED))]
    why = _FLUSHED if any(one.startswith(_DENORMAL) for one in wrong) else ""
    if any(name in _PRECISIONS and here.get(name) != value for name, value in found.items()):
        why += "; set such a switch around the product that needs it, and put it back"
    return f"it changes for the whole process: {', '.join(wrong)[:300]}{why}" if wrong else ""


@contextlib.contextmanager
def seeds(plain: int, mixed: int) -> Iterator[None]:
    """Random numbers inside are those that the reference was constructed with: a module may keep some of them where no
    state_dict holds them (``self.h0 = torch.randn(...)``), and a copy of it would else answer otherwise.

    After it they are nobody's: forks of one zygote would draw the same, and look as if one repeated another's.
    """
    numpy = sys.modules.get("numpy")
    random.seed(plain)
    torch.manual_seed(mixed)
    if numpy is not None:
        numpy.random.seed(mixed % 2**32)
    try:
        yield
    finally:
        random.seed()
        torch.seed()
        if numpy is not None:
            numpy.random.seed()
