import asyncio
import logging

import pytest
from distributed.worker import Worker, logger

from lpe_dask.cli.cluster_log import REPEATED, only_news


@pytest.fixture
def said():
    """What a handler of the log of `distributed` prints."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    log = logging.getLogger("distributed")
    log.addHandler(handler)
    yield messages
    log.removeHandler(handler)


def test_only_news__leaves_out_what_the_command_reports_itself(said):
    with only_news():
        for text in REPEATED:
            logger.error("%s at 12:00", text)
        logger.error("Worker exceeded 95% of its memory")
    logger.error(REPEATED[0])

    assert said == ["Worker exceeded 95% of its memory", REPEATED[0]]


class ClosingScheduler:
    async def heartbeat_worker(self, **told):
        raise OSError("Stream is closed")


class LastWorker:
    """A worker whose scheduler is closing, as far as its heartbeat looks."""

    address = contact_address = "tcp://127.0.0.1:1"
    scheduler = ClosingScheduler()
    active_keys, extensions = (), {}

    async def get_metrics(self):
        return {}


def test_only_news__leaves_out_the_heartbeat_that_the_end_of_a_cluster_met(said):
    with only_news():
        asyncio.run(Worker.heartbeat(LastWorker()))
    assert said == []

    asyncio.run(Worker.heartbeat(LastWorker()))
    (text,) = said
    assert text.startswith(REPEATED)
