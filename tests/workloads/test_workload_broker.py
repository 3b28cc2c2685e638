"""The configuration of the broker, and its absence."""

from pathlib import Path

import pytest

from cellbed_node.lifecycle import WorkloadError
from cellbed_node.offloading import broker


def test_the_configuration_listens_where_it_should_and_sends_at_once() -> None:
    lines = broker.configuration(["100.64.64.2", "127.0.0.1"], 1883, None).splitlines()
    assert "listener 1883 100.64.64.2" in lines
    assert "listener 1883 127.0.0.1" in lines
    assert "set_tcp_nodelay true" in lines
    assert not any(line.startswith("user ") for line in lines)
    assert "user root" in broker.configuration(["127.0.0.1"], 1883, "root").splitlines()


def test_a_missing_mosquitto_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "find", lambda _: None)
    with pytest.raises(WorkloadError, match="sudo apt install mosquitto"):
        broker.main({"addresses": ["127.0.0.1"], "port": 1883, "configuration": str(tmp_path / "broker.conf")})
