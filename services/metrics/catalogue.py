"""Every metric there is, by name. The dashboard and the documents name no other (tests hold them to that)."""

from __future__ import annotations

from services.metrics.exposition import Metric


def _counter(name: str, says: str) -> Metric:
    return Metric(f"rollstream_{name}_total", "counter", says)


def _gauge(name: str, says: str) -> Metric:
    return Metric(f"rollstream_{name}", "gauge", says)


BUILD = _gauge("build_info", "1; the version is a label")
READY = _gauge("worker_ready", "1 when all partitions of the worker are open")
CPU = Metric("process_cpu_seconds_total", "counter", "CPU time of the process, user and system")
MEMORY = Metric("process_resident_memory_bytes", "gauge", "Resident memory of the process")
STARTED = Metric("process_start_time_seconds", "gauge", "When the process began, in seconds since the epoch")

DELIVERED = _counter("stage_delivered", "Records that the stage has read")
FINISHED = _counter("stage_finished", "Records whose outputs and offset are committed")
COMMITS = _counter("stage_commits", "Group commits")
RECOVERED = _counter("stage_recovered", "Records whose step raised or ran over; each became a failure")
REOPENED = _counter("stage_reopened", "Partitions that were opened again after a commit or a fetch failed")
EXPIRED = _counter("stage_expired", "Records that the topic's retention removed before they were read")
ACTIVE = _gauge("stage_active", "Records being worked on")
IN_FLIGHT = _gauge("stage_in_flight", "Records accepted, not held back and not yet committed")
HELD = _gauge("stage_held", "Records held back until their group is complete")
PARTITIONS = _gauge("stage_partitions", "Partitions assigned to this worker")
LAG = _gauge("stage_lag", "Records of the assigned partitions that are not finished, by topic")
OLDEST = _gauge("stage_oldest_seconds", "Age of the longest-running work (tail age)")
SECONDS = Metric("rollstream_stage_seconds", "histogram", "Time that records were worked on; what answers at once is left out")

FAILURES = _counter("failures", "Failures made, by class; one made again after a kill counts again")
OPEN = _gauge("open_records", "Records between admission and the sink, by topic, as admission last measured")
ADMITTING = _gauge("admission_open", "1 when new prompts may be taken up")

MODEL_CALLS = _counter("model_calls", "Model calls begun")
MODEL_ANSWERED = _counter("model_answered", "Model calls that were answered")
MODEL_RETRIED = _counter("model_retried_calls", "Model calls that were answered, but not at once")
MODEL_OVERFLOWS = _counter("model_overflows", "Context overflows that became replies")
MODEL_RETRIES = _counter("model_retries", "Tries that were repeated, by reason")
MODEL_FAILURES = _counter("model_failures", "Model calls that were given up, by reason")
MODEL_IN_FLIGHT = _gauge("model_in_flight", "Model calls under way")
MODEL_WAITING = _gauge("model_waiting", "Model calls that wait for a place")
MODEL_ALLOWANCE = _gauge("model_allowance", "Calls that the adaptive limit allows at once")
MODEL_BREAKER = _gauge("model_breaker", "1 for the state that the endpoint's breaker is in")

POOL_PROCESSES = _gauge("pool_processes", "Processes that compute for verifiers and tools")
POOL_QUEUED = _gauge("pool_queued", "Jobs that no process has taken yet")
SANDBOX_PROGRAMS = _gauge("sandbox_programs", "Programs in the sandbox, those going away included")
SESSIONS = _gauge("sessions_live", "Live interpreters of rollouts")
THREADS_HELD_UP = _gauge("threads_held_up", "Side threads that one job has held for too long")

SINK_LINES = _counter("sink_lines", "Lines handed to the output, by kind (results, failures)")

ALL = [m for m in list(globals().values()) if isinstance(m, Metric)]
