# shellcheck shell=bash
# Sourced by with_hosts: a Slurm whose controller runs on h1 and whose nodes are all the hosts.

# Args: the number of hosts. Exports SLURM_CONF. The daemons end with the process namespace.
start_slurm() {
    local folder="$WITH_HOSTS/slurm" nodes i tries
    nodes="$(paste -sd, "$HOSTFILE")"
    mkdir -m 755 "$folder"
    export SLURM_CONF="$folder/slurm.conf"
    dd if=/dev/urandom of="$folder/munge.key" bs=1024 count=1 status=none
    chmod 600 "$folder/munge.key"
    # Eight CPUs a node, whatever the machine has: more tasks than cores may start, and none is bound.
    cat >"$SLURM_CONF" <<CONF
ClusterName=spgnn
SlurmctldHost=h1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.sock
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
KillWait=3
NodeName=$nodes CPUs=8 State=UNKNOWN
PartitionName=main Nodes=$nodes Default=YES MaxTime=INFINITE State=UP
CONF
    printf 'CgroupAutomount=no\n' >"$folder/cgroup.conf"
    munged --force --key-file="$folder/munge.key" --socket="$folder/munge.sock" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/munge.seed"
    "$here/on_host" h1 slurmctld || slurm_failed
    for ((i = 1; i <= $1; i++)); do "$here/on_host" "h$i" slurmd || slurm_failed; done
    for ((tries = 0; tries < 100; tries++)); do
        [[ $("$here/on_host" h1 "sinfo -h -t idle -o %D" 2>/dev/null) != "$1" ]] || return 0
        sleep 0.1
    done
    slurm_failed
}

slurm_failed() {
    tail -n 20 "$WITH_HOSTS"/slurm/*.log >&2
    fail "Slurm did not come up, see its logs above"
}
