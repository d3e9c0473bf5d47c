import os

# Before jax is imported: two devices for shard_map.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import pytest

jax.config.update("jax_enable_x64", True)


@pytest.fixture(autouse=True)
def seed():
    import inputs

    inputs.restart()
