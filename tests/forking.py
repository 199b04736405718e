"""Run something in a fork of this process."""

import multiprocessing


def in_fork(function, seconds=60):
    """Result of a function in a fork, which must answer in time and end well."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=lambda: there.send(function()))
    process.start()
    there.close()
    try:
        assert here.poll(seconds), "the fork waits for ever"
        answer = here.recv()
        process.join(seconds)
        assert process.exitcode == 0
        return answer
    finally:
        process.kill()
        process.join()
