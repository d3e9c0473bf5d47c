"""pytest plugin: runs tests with the operator in place of sdpa, and reports how often each called it."""

import os

import pytest

calls = 0


def _counted(function):
    def call(*args, **kwargs):
        global calls
        calls += 1
        return function(*args, **kwargs)

    return call


def _in_transformers():
    from transformers import AttentionInterface, AttentionMaskInterface

    from isentrope import hf

    for name in ("sdpa", hf.NAME):
        AttentionInterface.register(name, _counted(hf.attention_forward))
        AttentionMaskInterface.register(name, hf.row_mask)


def _in_torch():
    from isentrope.sdpa import activation

    activation.CHECKED.attention = _counted(activation.CHECKED.attention)
    activation.activate()


def pytest_configure(config):
    if os.environ["ISENTROPE_IN_PLACE_OF"] == "transformers":
        _in_transformers()
    else:
        _in_torch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    before = calls
    try:
        return (yield)
    finally:
        item.user_properties.append(("calls", calls - before))
