"""The local broker as a process: start, stop, crash, one per directory, found by others, gone with its starter."""

from pathlib import Path

import pytest

from rollstream.broker import BrokerBusyError, LocalBroker
from rollstream.broker.exercise import exercise

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]  # the first start on a machine downloads Kafka


async def test_a_started_broker_serves_transactions_groups_and_commits(tmp_path: Path) -> None:
    async with LocalBroker(tmp_path) as connection:
        assert await exercise(connection) >= 199


async def test_a_second_broker_on_the_same_directory_is_refused_and_names_the_first(tmp_path: Path) -> None:
    first = LocalBroker(tmp_path)
    await first.start()
    try:
        with pytest.raises(BrokerBusyError, match=rf"process {first.info.pid} at {first.info.bootstrap_servers}"):
            await LocalBroker(tmp_path).start()
        assert first.running
    finally:
        await first.stop()
