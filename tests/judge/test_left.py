# SPDX-License-Identifier: Apache-2.0
"""What a program leaves changed in its process is named, unless the reference's own file changes it as well."""

from __future__ import annotations

import builtins
import copy
import ctypes
import json
import logging
import math
import operator
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import library
from torch.nn.modules.module import register_module_forward_hook

from kernelwright.judge import left

_SAVED = torch.autograd.graph.saved_tensors_hooks(lambda kept: kept.bfloat16(), lambda kept: kept.float())
_MODE = torch.overrides.BaseTorchFunctionMode()
_LIBM, _HERE, _THREADS = ctypes.CDLL("libm.so.6"), Path.cwd(), torch.get_num_threads()
_INFERENCE, _HOOKS = torch.inference_mode(), list[Any]()


def _ignored(how: signal.Handlers) -> None:
    signal.signal(signal.SIGUSR2, how)


def _hooked(on: bool) -> None:
    if on:
        _HOOKS.append(register_module_forward_hook(lambda *_: None))
    else:
        _HOOKS.pop().remove()


def _precise(kind: str, how: str) -> None:
    operator.attrgetter(kind)(torch.backends).fp32_precision = how


def _no_relu(values: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    return values


@pytest.mark.parametrize(
    ("change", "back", "named"),
    [
        (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32), "type"),
        (lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None), "device"),
        (lambda: torch.set_flush_denormal(True), lambda: torch.set_flush_denormal(False), "denormal"),
        (
            lambda: torch.set_float32_matmul_precision("high"),
            lambda: torch.set_float32_matmul_precision("highest"),
            "precision of float32 products",
        ),
        (
            lambda: setattr(torch.backends.mkldnn, "enabled", False),
            lambda: setattr(torch.backends.mkldnn, "enabled", True),
            "oneDNN",
        ),
        (
            lambda: torch.set_autocast_enabled("cpu", True),
            lambda: torch.set_autocast_enabled("cpu", False),
            "autocast ([True, False])",
        ),
        (
            lambda: _precise("mkldnn.conv", "bf16"),
            lambda: _precise("mkldnn.conv", "none"),
            "mkldnn.conv.fp32_precision",
        ),
        (lambda: _precise("cudnn.rnn", "ieee"), lambda: _precise("cudnn.rnn", "tf32"), "cudnn.rnn.fp32_precision"),
        (lambda: _precise("cuda.matmul", "ieee"), lambda: _precise("cuda.matmul", "none"), ""),
        (
            lambda: torch.set_autocast_dtype("cpu", torch.float16),
            lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
            "what autocast makes ([torch.float16, ",
        ),
        (lambda: torch.set_autocast_cache_enabled(False), lambda: torch.set_autocast_cache_enabled(True), "keeps"),
        (lambda: logging.disable(logging.ERROR), lambda: logging.disable(logging.NOTSET), "what is logged (above 40)"),
        (lambda: _LIBM.fesetround(0xC00), lambda: _LIBM.fesetround(0), "rounding of floats"),
        (lambda: os.umask(0o777), lambda: os.umask(0o022), "mask of new files"),
        (lambda: os.chdir("/"), lambda: os.chdir(_HERE), "working directory (/)"),
        (
            lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL),  # who writes to a closed pipe dies of it
            lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN),
            "signals that are ignored",
        ),
        (lambda: _ignored(signal.SIG_IGN), lambda: _ignored(signal.SIG_DFL), "signals that are ignored"),
        (
            lambda: signal.signal(
                signal.SIGXFSZ, signal.SIG_DFL
            ),  # Python ignores it; what Triton compiles with does not
            lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
            "",
        ),
        (
            lambda: signal.signal(signal.SIGINT, lambda *_: None),
            lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            "what Ctrl-C does",
        ),
        (lambda: _LIBM.feenableexcept(8), lambda: _LIBM.fedisableexcept(8), "traps of floats (8)"),
        (lambda: torch.set_num_threads(7), lambda: torch.set_num_threads(_THREADS), "the number of threads (7)"),
        (_INFERENCE.__enter__, lambda: _INFERENCE.__exit__(None, None, None), "inference mode (True)"),
        (lambda: _hooked(True), lambda: _hooked(False), "hooks of all modules (1)"),
        (_SAVED.__enter__, lambda: _SAVED.__exit__(None, None, None), "hooks on what is saved for gradients (True)"),
        (_MODE.__enter__, lambda: _MODE.__exit__(None, None, None), "modes of all operators (1)"),
        (lambda: torch.set_grad_enabled(False), lambda: torch.set_grad_enabled(True), "gradients"),
        (lambda: torch.manual_seed(torch.initial_seed() ^ 1), lambda: None, "seed"),
        (lambda: random.seed(7), random.seed, "the seed of everybody's random numbers in random"),
        (lambda: np.random.seed(7), np.random.seed, "the seed of everybody's random numbers in numpy"),
        (lambda: torch.rand(4), lambda: None, ""),
        (lambda: [random.random() for _ in range(5000)], lambda: None, ""),
        (lambda: np.random.rand(5000), lambda: None, ""),
    ],
)
def test_settings_of_a_process_are_seen_to_change(
    change: Callable[[], object], back: Callable[[], object], named: str
) -> None:
    """Not that random numbers were drawn: a reference may draw some as well."""
    before = left.Before()
    before.constructed()
    own = left.settings()
    try:
        change()
        found = before.changed()
        here = left.settings()
    finally:
        back()
    said = left.words(found, lambda: own, random_=False)
    assert named in said if named else not said
    assert ("put it back" in said) == (named in ("precision of float32 products", "oneDNN") or "fp32" in named)
    assert ("-ffast-math" in said) == (named == "denormal")  # whoever compiled with it does not know of denormals
    if named and "seed" not in named:
        assert not left.words(found, lambda: here, random_=False)


@pytest.mark.parametrize("raises", [False, True])
def test_kernels_that_are_replaced_where_nobody_sees_it_answer_otherwise(raises: bool) -> None:
    """All of torch is as it was but what it does."""

    def other(values: torch.Tensor, approximate: str = "none") -> torch.Tensor:
        if raises:
            raise ValueError
        return torch.relu(values)

    before = left.Before()
    before.constructed()
    kernels = library.Library("aten", "IMPL")
    try:
        kernels.impl("gelu", other, "CPU")
        said = left.words(before.changed(), left.settings, random_=False)
    finally:
        kernels._destroy()
    assert ("common operators of torch (raise ValueError)" if raises else "what torch makes of gelu") in said
    assert not left.words(before.changed(), left.settings, random_=False)


def test_a_task_of_random_numbers_may_seed_them() -> None:
    """And one whose constructor did, since what it left is noted after that."""
    before = left.Before()
    torch.manual_seed(7)
    before.constructed()
    assert not before.changed()
    torch.manual_seed(torch.initial_seed() ^ 1)
    assert not left.words(before.changed(), left.settings, random_=True)


def test_another_kind_of_generator_is_no_drawing_on() -> None:
    """And no error of ours."""
    state = left._twisters()["random"]
    assert left._follows(state, state) and not left._follows(state, ())


def test_functions_that_are_replaced_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless torch does so itself."""
    before = left.Before()
    before.constructed()
    monkeypatch.setattr(torch.nn.functional, "relu", _no_relu)
    assert "torch.nn.functional.relu (replaced)" in left.words(before.changed(), left.settings, random_=False)
    monkeypatch.setattr(torch.nn.functional, "relu", torch.nn.functional.silu)
    assert not before.changed()


@pytest.mark.parametrize(
    ("holder", "key", "named"),
    [
        (torch.nn.Linear, "forward", "torch.nn.Linear.forward"),
        (torch.nn.Linear, "__call__", "torch.nn.Linear.__call__"),
        (torch.Tensor, "softmax", "torch.Tensor.softmax"),
        (torch.autograd.Function, "apply", "torch.autograd.Function.apply"),
        (math, "exp", "math.exp"),
        (torch.linalg, "solve", "torch.linalg.solve"),
        (torch.optim.SGD, "step", "torch.optim.SGD.step"),
        (builtins, "round", "builtins.round"),
        (torch.nn.init, "kaiming_uniform_", "torch.nn.init.kaiming_uniform_"),
        (torch.nn.utils, "clip_grad_norm_", "torch.nn.utils.clip_grad_norm_"),
        (torch.distributions.Normal, "log_prob", "torch.distributions.Normal.log_prob"),
        (torch.autograd, "grad", "torch.autograd.grad"),
        (torch._C, "_show_config", "torch._C._show_config"),
        (copy, "deepcopy", "copy.deepcopy"),
        (random, "shuffle", "random.shuffle"),
    ],
)
def test_methods_of_everybodys_classes_are_seen_also_where_they_were_inherited(
    holder: Any, key: str, named: str
) -> None:
    """A Linear that rounds to bfloat16 for every model of its process was granted, and a softmax in half precision."""
    before, own = left.Before(), vars(holder).get(key)
    before.constructed()
    setattr(holder, key, _no_relu)
    try:
        found = before.changed()
    finally:
        if own is None:
            delattr(holder, key)
        else:
            setattr(holder, key, own)
    assert f"{named} (replaced)" in left.words(found, left.settings, random_=False)
    assert not before.changed()


def test_a_function_that_says_it_is_torchs_is_seen_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """By where its code lies."""
    before = left.Before()
    before.constructed()
    monkeypatch.setattr(_no_relu, "__module__", "torch")
    monkeypatch.setattr(torch.cuda, "synchronize", _no_relu)
    assert "torch.cuda.synchronize (replaced)" in left.words(before.changed(), left.settings, random_=False)


def test_inputs_that_were_written_to_and_put_back_are_seen() -> None:
    """But where the contract says that they are written to."""
    before = left.Before()
    before.constructed()
    mine, other = (torch.empty(0).set_(torch.ones(4).untyped_storage(), 0, (4,)) for _ in range(2))
    left.called(before, [mine, other])
    assert not before.changed()
    other.mul_(2.0)
    other.mul_(0.5)
    left.called(before, [mine, other])
    found = before.changed()
    assert "input 1 (written to" in left.words(found, left.settings, random_=False)
    assert not left.words(found, left.settings, random_=False, mutates=(1,))


def test_inputs_that_are_handed_over_again_are_not_seen_as_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """But where the call does write to them; whoever minds versions sees others."""
    before = left.Before()
    before.constructed()
    leaf = torch.empty(0).set_(torch.ones(4).untyped_storage(), 0, (4,))
    with monkeypatch.context() as patched:
        patched.setattr(left.os, "urandom", lambda count: b"\0" * count)
        call, version = ([leaf], {}, [leaf]), leaf._version
        assert left.kept(before, call, grad=True) is None
        assert left.kept(before, call, grad=False) is call
    assert leaf._version > version
    left.called(before, [leaf])
    assert not before.changed()
    leaf.mul_(2.0)
    left.called(before, [leaf])
    assert f"{left.INPUT} 0" in before.changed()


def test_threads_that_a_file_asks_for_when_it_is_imported_are_its_users_to_see() -> None:
    """Those that a call leaves otherwise nobody sees."""
    before = left.Before()
    torch.set_num_threads(_THREADS + 1)
    try:
        before.constructed()
        assert not before.changed()
    finally:
        torch.set_num_threads(_THREADS)
    assert f"the number of threads ({_THREADS})" in left.words(before.changed(), dict, random_=False)


def test_a_triton_kernel_that_compiles_leaves_nothing_behind(tmp_path: Path) -> None:
    """Its compiler catches a signal that Python ignores: for some commits every program that compiled was refused."""
    pytest.importorskip("triton")
    script = Path(__file__).with_name("triton_left.py")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    made = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=True)
    told = json.loads(made.stdout.splitlines()[-1])
    assert told["compiled"] and not told["left"]
    assert told["ignored"] != left.settings()[left.IGNORED]  # else this shows nothing


@pytest.mark.parametrize(
    ("was", "now", "seen"),
    [
        ("0000000181001000", "0000000080001000", False),
        ("0000000001005002", "0000000000001000", False),  # as a confined program that compiles with Triton
        ("0000000101001000", "0000000080001000", False),
        ("0000000181001007", "0000000080001000", False),  # as one that nohup started in the background
        ("0000000181001000", "0000000180005000", True),
        ("0000000001005002", "0000000001004002", True),
    ],
)
def test_signals_that_glibc_and_triton_catch_are_theirs(
    monkeypatch: pytest.MonkeyPatch, was: str, now: str, seen: bool
) -> None:
    """What make spawns ignores 32 and 33 until it has a thread; who ignores SIGTERM, or no longer SIGPIPE, is seen."""
    status, mask = left._status, [was]
    monkeypatch.setattr(left, "_status", lambda name: mask[0] if name == "SigIgn" else status(name))
    before = left.Before()
    before.constructed()
    mask[0] = now
    assert (left.IGNORED in before.changed()) is seen


def test_checks_of_distributions_that_torchs_compiler_switched_off_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever imported flex_attention was refused."""
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    before = left.Before()
    before.constructed()
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", False)
    assert "checks of distributions" in before.changed()
    monkeypatch.setitem(sys.modules, "torch._dynamo", torch)
    assert not before.changed()
