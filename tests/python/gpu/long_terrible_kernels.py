"""Every argument of the functions on GPUs with invalid values: refused by its name, or computed."""

import pytest
from long_terrible_values import ALSO, CALLS, every_argument, refusal, wrong_answers

import isentrope.gpu

ON_GPUS = {name: (getattr(isentrope.gpu, name), CALLS[name][1]) for name in isentrope.gpu.__all__}


@pytest.mark.parametrize("function", ON_GPUS)
def test_what_is_right_works(function):
    call, arguments = ON_GPUS[function]
    assert refusal(call, arguments) is None


@pytest.mark.parametrize("function, argument", every_argument(ON_GPUS))
def test_what_is_terrible_is_refused_by_name_or_works(function, argument):
    call, right = ON_GPUS[function]
    assert not list(wrong_answers(call, argument, ALSO, lambda: right))
