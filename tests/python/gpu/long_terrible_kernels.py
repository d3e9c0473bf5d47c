"""Every argument of the functions on GPUs with invalid values: refused by its name, or computed."""

from long_terrible_values import ALSO, CALLS, two_tests_of

import isentrope.gpu

ON_GPUS = {name: (getattr(isentrope.gpu, name), CALLS[name][1]) for name in isentrope.gpu.__all__}
test_what_is_right_works, test_what_is_terrible_is_refused_by_name_or_works = two_tests_of(ON_GPUS, ALSO)
