"""Calls that must be refused, one a line."""

import pytest


def assert_refused(message, function, /, *arguments, error=ValueError, **options):
    """Requires that the call raises the error, with a message that has this pattern."""
    with pytest.raises(error, match=message):
        function(*arguments, **options)
