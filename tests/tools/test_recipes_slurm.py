"""cluster/slurm and the commands of its page, on a SLURM of three nodes."""

import re
import sys
from pathlib import Path

import pytest

from digests import parts_in
from recipes import CLUSTER, SHARED, commands_of, parts_of_site, run_at_site, skip_unless

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SLURM = [sys.executable, str(Path(__file__).with_name("slurm.py")), f"{SHARED}/slurm"]

COMMANDS = commands_of("slurm")
[SUBMIT] = [command for command in COMMANDS if command.startswith("sbatch ")]
[RUNNER] = [command for command in COMMANDS if command.startswith("salloc ")]
[CHAIN] = [command for command in COMMANDS if "chain.sh" in command]
ADAPTIVE = COMMANDS[COMMANDS.index("mkdir -p ~/.config/dask") :]

#: Functions of the scripts: wait until an output has so many parts; until no job is left.
WAITING = """
    n_parts() { ls out 2> /dev/null | grep -c part- || true; }
    parts() { until [ $(n_parts) -ge $1 ]; do sleep 0.3; done; }
    finished() { while [ -n "$(squeue --noheader)" ]; do sleep 0.5; done; }
"""


@pytest.fixture(autouse=True, scope="module")
def _can_run():
    skip_unless("slurmctld", "slurmd", "munged", "sbatch")


def on_slurm(site, script, slow=0.0):
    return run_at_site(site, WAITING + script, 400, SLURM, slow)


def log_of(site, job=1):
    return (site / "lpe" / f"lpe-{job}.log").read_text()


def test_sbatch__gives_the_bits_of_one_process(site, parts_of_threads):
    on_slurm(site, f"{SUBMIT}; finished")

    assert "exit code 0, start 0" in log_of(site)
    assert parts_of_site(site) == parts_of_threads


@pytest.mark.slow
def test_crontab__submits_one_job_after_another(site, parts_of_threads):
    """In the bare environment of cron. The second job waits, and has nothing to do."""
    assert "(crontab -l; cat lpe-dask/cluster/slurm/crontab) | crontab -" in COMMANDS
    text = (CLUSTER / "slurm" / "crontab").read_text()
    [path] = re.findall(r"^PATH=(.*)$", text, re.MULTILINE)
    [command] = re.findall(r"^[\d*]\S*(?: \S+){4} +(.*)$", text, re.MULTILINE)
    assert "%" not in command  # cron makes a new line of it
    (site / "cron.sh").write_text(command)
    cron = f'env -i HOME="$HOME" PATH="{path}" SLURM_CONF="$SLURM_CONF" sh {SHARED}/cron.sh'
    dated = """sed -i 's|"out"|"out/{date}"|' job.toml"""

    said = on_slurm(
        site, f"{dated}; {cron}; {cron}; squeue --noheader --format=%r; finished"
    )

    assert "Dependency" in said
    assert "exit code 0, start 0" in log_of(site)
    assert "nothing to do" in log_of(site, 2)
    [output] = (site / "lpe" / "out").iterdir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", output.name)
    assert parts_in(output) == parts_of_threads


@pytest.mark.slow
def test_sbatch__matches_memory_and_threads_to_what_slurm_grants(site):
    on_slurm(site, f"export LPE_INTERFACE=eth0; {SUBMIT} --overwrite; finished")

    said = "".join(path.read_text() for path in (site / "lpe").glob("lpe-1-dask-*.log"))
    assert re.findall(r"Threads: +(\d+)", said) == ["2"] * 3
    assert re.findall(r"Memory: +(.+)", said) == ["1.80 GiB"] * 3
    assert set(re.findall(r"Start worker at: +tcp://([\d.]+):", said)) == {"10.88.9.1"}


PREEMPTION = 'sbatch --partition=urgent --exclusive --nodes=3 --wrap="sleep 1"'

#: With the scheduler, the client and a worker, none of which can release the lock.
LOSS = f"""
    for pid in $(grep -lzx SLURMD_NODENAME=n1 /proc/[0-9]*/environ | cut -d/ -f3); do
        kill -KILL $pid $(ps -o ppid= -p $pid) || true
    done
    kill -KILL $(cat {SHARED}/slurm/slurmd-n1.pid)
"""

#: ``--signal=B:TERM@120`` sends the batch script the same signal.
TIME_OVER = "scancel --batch --signal=TERM 1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "words", "nodes"),
    [
        (PREEMPTION, ["exit code 143, start 0", "parts exist already"], ""),
        (LOSS, ["from a run that died"], " NodeList=n[2-3]"),
        (TIME_OVER, ["exit code 143, start 0"], ""),
    ],
    ids=["preempted", "first node lost", "time nearly over"],
)
def test_sbatch__is_started_again(site, parts_of_threads, event, words, nodes):
    script = f"{SUBMIT}\nparts 5\n{event}\nfinished\nscontrol show job 1"

    said = on_slurm(site, script, slow=0.7)

    assert "Restarts=1" in said
    assert nodes in said
    for expected in (*words, "exit code 0, start 1"):
        assert expected in log_of(site)
    assert parts_of_site(site) == parts_of_threads


@pytest.mark.slow
def test_sbatch__is_over_when_it_was_cancelled(site):
    script = (
        f"{SUBMIT}; parts 5; scancel 1; finished; sleep 8; finished; scontrol show job 1"
    )

    said = on_slurm(site, script, slow=0.7)

    assert "JobState=CANCELLED" in said
    assert "Restarts=0" in said
    assert "exit code 143, start 0" in log_of(site)
    assert not list((site / "lpe" / "out").glob("_lock*"))


@pytest.mark.slow
def test_sbatch__requeues_itself_after_what_may_pass(site):
    """A command in place of lpe-dask ends with the code of its argument, then with 0."""
    commands = site / "commands"
    commands.mkdir()
    (commands / "lpe-dask").write_text(
        "#!/bin/bash\n[ ${SLURM_RESTART_COUNT:-0} -gt 0 ] && exit 0; exit $2\n"
    )
    (commands / "lpe-dask").chmod(0o755)
    codes = [0, 1, 2, 3, 4, 75, 130, 143]
    submit = SUBMIT.replace("job.toml", "$code")
    script = f"""
        export PATH={SHARED}/commands:$PATH
        for code in {" ".join(map(str, codes))}; do {submit}; done
        finished
    """

    on_slurm(site, script)

    starts = {code: log_of(site, i).count("exit code") for i, code in enumerate(codes, 1)}
    assert starts == {0: 1, 1: 2, 2: 1, 3: 1, 4: 1, 75: 2, 130: 1, 143: 2}


FIT = """
[nominal]
data = "{data}"
[model]
path = "model"
"""

SCORE = """
[model]
path = "model"
[score]
data = "rows"
output = "out"
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_wrong", [False, True], ids=["afterok", "never satisfied"])
def test_chain__scores_after_the_fit_is_done(site, is_wrong):
    """Where the fit is refused, the second job is removed, and nothing is scored."""
    data = "nowhere.parquet" if is_wrong else "nominal.parquet"
    (site / "lpe" / "fit.toml").write_text(FIT.format(data=data))
    (site / "lpe" / "score.toml").write_text(SCORE)

    on_slurm(site, f"{CHAIN}; finished")

    assert f"exit code {2 if is_wrong else 0}, start 0" in log_of(site, 1)
    assert (site / "lpe" / "lpe-2.log").exists() != is_wrong
    assert (site / "lpe" / "out" / "_summary.json").exists() != is_wrong


@pytest.mark.slow
def test_runner__gives_the_bits_of_one_process(site, parts_of_threads):
    pytest.importorskip("dask_jobqueue")

    said = on_slurm(site, RUNNER)

    assert re.findall(r"Memory: +(.+)", said) == ["1.80 GiB"] * 3
    assert parts_of_site(site) == parts_of_threads


@pytest.mark.slow
def test_runner__ends_with_the_exit_code_of_the_command(site):
    pytest.importorskip("dask_jobqueue")
    wrong = RUNNER.replace("job.toml", "nowhere.toml")

    said = on_slurm(site, f"{wrong} && exit 99 || echo exit code $?")

    assert "the job file nowhere.toml cannot be read" in said
    assert "exit code 2\n" in said


@pytest.mark.slow
def test_adaptive__replaces_workers_that_are_cancelled_or_at_their_end(
    site, parts_of_threads
):
    pytest.importorskip("dask_jobqueue")
    *before, run = ADAPTIVE
    # Every worker lives half a minute; the nodes are where no route leads out.
    short = "s/50m/30s/; s/5m/4s/; s/interface: null/interface: eth0/"
    script = f"""
        {"; ".join(before)}
        sed -i '{short}' ~/.config/dask/jobqueue.yaml
        {run} &
        parts 3
        scancel $(squeue --noheader --states=RUNNING --format=%i | head -1)
        wait $!
        finished
        echo "jobs: $(wc -l < {SHARED}/slurm/completed.txt)"
    """

    said = on_slurm(site, script, slow=3)

    assert int(re.search(r"jobs: (\d+)", said)[1]) > 2
    assert parts_of_site(site) == parts_of_threads
