"""Names of environment variables that two sides share: ours and torchrun's.

Layer: contract, leaf. Only this module spells the names, except `worlds/kubernetes/fetch.py` and
`agent/processes/standby_start.py`, which run before anything can be imported. Imports nothing:
`import trainrun` reads one of them. `contract.environment` defines the values of a training
process's variables.
"""

from __future__ import annotations

# To the agent, from the operator or `trainrun run`.
AGENT_CONFIG = "TRAINRUN_AGENT_CONFIG"
"""An `AgentConfig` as JSON."""
CLERK_CONFIG = "TRAINRUN_CLERK_CONFIG"
"""To the clerk of a sweep, from the operator: its configuration as JSON."""
PAGE_SETTINGS = "TRAINRUN_PAGE"
"""To the page in a cluster, from the chart: its settings as JSON."""
POD_IP = "TRAINRUN_POD_IP"
"""Overrides `AgentConfig.address`: known only once the pod runs."""
NODE_NAME = "TRAINRUN_NODE_NAME"
"""Overrides `AgentConfig.node`: known only once the pod is placed."""
NODE_FOLDER = "TRAINRUN_NODE"
"""The worker's folder in the local world; inherited, so it marks all processes of the worker."""
CHECKPOINT_PATIENCE = "TRAINRUN_CHECKPOINT_PATIENCE"
"""`AgentConfig.checkpoint_patience` of a local run, in seconds; set by its user."""

TASKS_CPUS = "TRAINRUN_TASKS_CPUS"
"""CPUs that each rank has for tasks, a number above 0; set by its user. Absent: its share of the
worker's CPUs."""

# To a training process, from its agent.
RUN = "TRAINRUN_RUN"
RUN_ID = "TRAINRUN_RUN_ID"
"""The run's id, the same in all attempts; see `ProcessPlace.run_id`."""
ATTEMPT = "TRAINRUN_ATTEMPT"
SOCKET = "TRAINRUN_SOCKET"
"""Path of the agent's unix socket. A process belongs to a run if this is set."""
STAGING = "TRAINRUN_STAGING"
"""The rank's folder for checkpoint files."""
CONTROL = "TRAINRUN_CONTROL"
"""Path of the rank's control file."""
STACKS = "TRAINRUN_STACKS"
"""Path of the file to which the rank writes the stacks of its threads on request."""
CHECKPOINT = "TRAINRUN_CHECKPOINT"
"""The resume point as JSON; unset if the attempt starts from scratch."""
INITIAL = "TRAINRUN_INITIAL"
"""URI of `checkpoint.initialFrom`; unset if there is none."""
RESUME_PATH = "TRAINRUN_RESUME_PATH"
"""With `spec.checkpoint.folder`: the restored save; unset if nothing was restored."""
RESUME_ARGS = "TRAINRUN_RESUME_ARGS"
"""Likewise, the `resumeArgs` as a shell reads them; unset where they are not given."""
PLACE = "TRAINRUN_PLACE"
"""`<rank>/<world size>` as set by the agent; other launchers may change RANK and WORLD_SIZE."""
PROCESS = "TRAINRUN_PROCESS"
"""Id of the process that represents the rank: it sets this itself, and its children inherit it."""
PARAMETER_PREFIX = "TRAINRUN_PARAM_"
"""Prefix of the name of a sweep's parameter, in capital letters."""
PARAMS = "TRAINRUN_PARAMS"
"""All parameters of a sweep's trial as a JSON object."""
TRIAL = "TRAINRUN_TRIAL"
"""The trial's number in its sweep, from 0."""

# To a standby interpreter of a rank, from its agent.
STANDBY = "TRAINRUN_STANDBY"
"""What it must import, and where it waits; removed once it is the rank's process."""
STANDBY_NAME = "trainrun-stdby"
"""Its name in `ps` until then."""

# To the training process of rank 0, from its agent, where its user has not set them.
WANDB_RUN_ID = "WANDB_RUN_ID"
WANDB_RESUME = "WANDB_RESUME"
POSTS_URL = "KUBEFLOW_TRAINER_SERVER_URL"
"""Where frameworks with Kubeflow Trainer's protocol post their progress: the agent."""
POSTS_TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"
"""Path of a file with the token for these posts."""
NO_PROXY = "no_proxy"
"""Hosts to reach without a proxy; the agent's own is added for posts."""

# To a training process, from its agent, where its user has not set them.
JAX_COORDINATOR_ADDRESS = "JAX_COORDINATOR_ADDRESS"
JAX_LOCAL_DEVICE_IDS = "JAX_LOCAL_DEVICE_IDS"
JAX_NUM_PROCESSES = "JAX_NUM_PROCESSES"
"""Unlike the two above, JAX 0.10 does not read this one and the next: scripts do."""
JAX_PROCESS_ID = "JAX_PROCESS_ID"

# To a training process, from its agent, from torchrun or from another launcher.
RANK = "RANK"
WORLD_SIZE = "WORLD_SIZE"
LOCAL_RANK = "LOCAL_RANK"
LOCAL_WORLD_SIZE = "LOCAL_WORLD_SIZE"
NODE_RANK = "NODE_RANK"
GROUP_RANK = "GROUP_RANK"
"""torchrun's name for NODE_RANK."""
GROUP_WORLD_SIZE = "GROUP_WORLD_SIZE"
"""Number of workers, set by torchrun as are the next three."""
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
