"""A small kubelet for tests: pods bound to its nodes really run, as processes of this machine.

A container is a process in user, mount, PID, IPC and UTS namespaces of its own: it sees this
machine's files read-only, its volumes, a /tmp of its own, and only its own processes. The network
is the machine's: each pod has an address of its own in 127.0.0.0/8. Every image holds what the
test's Python environment holds; an image whose name begins with `missing` cannot be pulled.

As in a real kubelet: containers go on without it, and are adopted when it returns; statuses,
reasons and exit codes; init containers; volumes by symbolic links that are replaced at once;
SIGTERM, grace period, SIGKILL; node leases; admission by the node's resources.

Not there: probes, lifecycle hooks, limits of resources, logs over the API, restarts (with
restartPolicy Always a pod whose container ends is over, and its controller makes another). An
environment variable that is 0.0.0.0 or :: holds the pod's own address. A test lets a container run
out of memory by the annotation OOM_KILL, and the node evict a pod by EVICT.
"""

OOM_KILL = "drivetrain.test/oom-kill"
EVICT = "drivetrain.test/evict"
