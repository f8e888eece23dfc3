"""Names of the environment variables on which two sides agree: ours and torchrun's.

Layer: contract, leaf. Each name is spelled here alone, but for `worlds/kubernetes/fetch.py` and
`agent/processes/standby_start.py`, which run before anything can be imported. Imports nothing:
`import trainrun` reads one of them. What the variables of a training process hold is in
`contract.environment`.
"""

from __future__ import annotations

# To the agent, from whoever starts it.
AGENT_CONFIG = "TRAINRUN_AGENT_CONFIG"
"""An `AgentConfig` as JSON."""
CLERK_CONFIG = "TRAINRUN_CLERK_CONFIG"
"""To the clerk of a sweep, from the operator: what it is told at its start, as JSON."""
POD_IP = "TRAINRUN_POD_IP"
"""Overrides `AgentConfig.address`: known only once the pod runs."""
NODE_NAME = "TRAINRUN_NODE_NAME"
"""Overrides `AgentConfig.node`: known only once the pod is placed."""
NODE_FOLDER = "TRAINRUN_NODE"
"""The worker's folder in the local world; inherited, so it marks all that the worker started."""
CHECKPOINT_PATIENCE = "TRAINRUN_CHECKPOINT_PATIENCE"
"""`AgentConfig.checkpoint_patience` of a local run, in seconds; set by its user."""

TASKS_CPUS = "TRAINRUN_TASKS_CPUS"
"""CPUs that each rank has for tasks, a number above 0; set by its user. Absent: its share of those
that the worker has."""

# To a training process, from its agent.
RUN = "TRAINRUN_RUN"
RUN_ID = "TRAINRUN_RUN_ID"
"""The run's id, the same in all attempts; see `ProcessPlace.run_id`."""
ATTEMPT = "TRAINRUN_ATTEMPT"
SOCKET = "TRAINRUN_SOCKET"
"""Path of the agent's unix socket. A process belongs to a run where it is set."""
STAGING = "TRAINRUN_STAGING"
"""The rank's folder for checkpoint files."""
CONTROL = "TRAINRUN_CONTROL"
"""Path of the rank's control file."""
STACKS = "TRAINRUN_STACKS"
"""Path of the file into which the rank writes where its threads stand, when it is asked."""
CHECKPOINT = "TRAINRUN_CHECKPOINT"
"""The resume point as JSON; unset where the attempt starts from nothing."""
INITIAL = "TRAINRUN_INITIAL"
"""URI of `checkpoint.initialFrom`; unset where there is none."""
PLACE = "TRAINRUN_PLACE"
"""`<rank>/<world size>` as the agent has given them, whatever becomes of the two variables."""
PROCESS = "TRAINRUN_PROCESS"
"""Id of the process that speaks for the rank: set by it, inherited by its children."""
PARAMETER_PREFIX = "TRAINRUN_PARAM_"
"""Before the name of a sweep's parameter, in capital letters."""
PARAMS = "TRAINRUN_PARAMS"
"""All parameters of a sweep's trial as a JSON object."""
TRIAL = "TRAINRUN_TRIAL"
"""The trial's number in its sweep, from 0."""

# To an interpreter that stands by for a rank, from its agent.
STANDBY = "TRAINRUN_STANDBY"
"""What it is to import, and where it waits; gone once it is the rank's process."""
STANDBY_NAME = "trainrun-stdby"
"""How it is called by `ps` until then."""

# To the training process of rank 0, from its agent, where its user has not set them.
WANDB_RUN_ID = "WANDB_RUN_ID"
WANDB_RESUME = "WANDB_RESUME"
POSTS_URL = "KUBEFLOW_TRAINER_SERVER_URL"
"""Where frameworks that know Kubeflow Trainer's protocol post how far they are: the agent."""
POSTS_TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"
"""Path of a file with the token that they show."""
NO_PROXY = "no_proxy"
"""Hosts that are reached without a proxy; the agent's own is added for posts."""

# To a training process, from its agent, where its user has not set them.
JAX_COORDINATOR_ADDRESS = "JAX_COORDINATOR_ADDRESS"
JAX_LOCAL_DEVICE_IDS = "JAX_LOCAL_DEVICE_IDS"
JAX_NUM_PROCESSES = "JAX_NUM_PROCESSES"
"""Unlike the two above nothing in JAX 0.10 reads this one and the next: scripts do."""
JAX_PROCESS_ID = "JAX_PROCESS_ID"

# To a training process, from its agent, from torchrun or from another launcher.
RANK = "RANK"
WORLD_SIZE = "WORLD_SIZE"
LOCAL_RANK = "LOCAL_RANK"
LOCAL_WORLD_SIZE = "LOCAL_WORLD_SIZE"
NODE_RANK = "NODE_RANK"
GROUP_RANK = "GROUP_RANK"
"""What torchrun calls NODE_RANK."""
GROUP_WORLD_SIZE = "GROUP_WORLD_SIZE"
"""Number of workers, as torchrun has it; the next three are its as well."""
ROLE_NAME = "ROLE_NAME"
ROLE_RANK = "ROLE_RANK"
ROLE_WORLD_SIZE = "ROLE_WORLD_SIZE"
MASTER_ADDR = "MASTER_ADDR"
MASTER_PORT = "MASTER_PORT"
TORCH_RUN_ID = "TORCHELASTIC_RUN_ID"
TORCH_RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"
TORCH_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
TORCH_AGENT_STORE = "TORCHELASTIC_USE_AGENT_STORE"
"""Would make PyTorch use the store of an outer torchrun, whose attempt is over."""
