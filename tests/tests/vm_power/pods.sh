# A node without a control plane: `pods.sh PHASE`.
phase=$1
conf=/etc/cni/net.d/05-seaway.conflist manifests=/etc/seaway/manifests log=/run/agent.log
# Seconds that each wait may take, less than the test waits for what is said after it, and
# between two looks.
patience=600 pause=1
mkdir -p /opt/cni/bin "$manifests"
cmp -s /seaway/bin/seaway-cni /opt/cni/bin/seaway-cni || cp /seaway/bin/seaway-cni /opt/cni/bin/
ln -sf seaway-cni /opt/cni/bin/loopback

# Nothing that hangs keeps a wait from its end.
get() { timeout 60 /seaway/bin/seaway-agent get "$@" --output json 2>/dev/null; }
in_runtime() { timeout 60 ctr -n k8s.io "$@"; }
records() { ls /run/seaway/cni/seaway/*/ 2>/dev/null | grep -c =; }

# What there is, in fewer lines than the test shows of a console.
diagnose() {
    echo "--- held: $held"
    get pods | jq -c '.items[] | [.metadata.name, .status.phase, .status.podIP]' | head -n 20
    in_runtime containers ls | head -n 30
    ls /run/netns | head -n 15
    ip -o link show | grep ': sw' | cut -c 1-80 | head -n 15
    echo "--- agent"
    tail -n 15 "$log" | cut -c 1-500
    echo "--- containerd"
    tail -n 8 /run/containerd.log | cut -c 1-500
}
# Seconds since the boot.
clock() {
    read -r up _ </proc/uptime
    up=${up%.*}
}
# `within WHAT COMMAND…`: tries the command until it succeeds. Where it does not in time, the
# last line says what has failed, which the test looks for.
within() {
    what=$1
    shift
    clock
    deadline=$((up + patience))
    until "$@"; do
        clock
        if [ "$up" -ge "$deadline" ]; then
            diagnose
            echo "@@power failed to $what"
            exit 1
        fi
        sleep "$pause"
    done
}

manifest() {
    cat >"$manifests/$1.yaml" <<END
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: 'seaway.test/busybox:1', command: [sleep, '1000000']}]
END
}
service() {
    cat >"$manifests/service.yaml" <<END
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
END
}
write_manifests() {
    for pod; do manifest "pod-$pod"; done
    sync
}

runtime_answers() { in_runtime version >/dev/null 2>&1; }
start() {
    containerd --config /seaway/files/containerd.toml --log-level error >/run/containerd.log 2>&1 &
    within "start containerd" runtime_answers
    echo "@@power containerd answers"
    [ "$(in_runtime images ls -q | grep -c '^seaway.test')" = 2 ] ||
        for archive in /seaway/cache/images/*; do ctr -n k8s.io images import "$archive" >/dev/null; done
    sync
    # An uplink that leads nowhere: the pod network wants one.
    ip link add eth0 type veth peer name far
    ip addr add 172.30.0.11/24 dev eth0
    ip link set eth0 up
    ip link set far up
    ip route add default via 172.30.0.1
    [ -e "$conf" ] && echo "@@power the conf of the earlier boot is there"
    touch /run/agent-started
    /seaway/bin/seaway-agent standalone "$manifests" --node-name vm --node-ip 172.30.0.11 \
        --service-proxy iptables >"$log" 2>&1 &
}

# Whether exactly so many pods are there, all of them ready and with an address, and the Service
# as well. An agent that does not serve yet says nothing, and jq has nothing against that.
are_ready() {
    pods=$(get pods)
    service=$(get services | jq -r '.items[] | .spec.clusterIP // empty')
    [ -n "$service" ] && [ "$(printf '%s' "$pods" | jq --argjson n "$1" '.items | length == $n and
        all(.[]; (.status.podIP // "") != "" and
            any(.status.conditions[]?; .type == "Ready" and .status == "True"))')" = true ]
}
settled() {
    within "settle with $1 pods" are_ready "$1"
    printf '%s' "$pods" | jq -r '.items[] | "@@power pod \(.metadata.name) \(.status.podIP)"'
    echo "@@power service $service"
}

# Whether there is what so many pods have, and nothing of any other.
is_all() {
    links=$(ip -o link show | grep -c ': sw')
    containers=$(in_runtime containers ls -q | wc -l)
    namespaces=$(ls /run/netns 2>/dev/null | wc -l)
    held="$(records) records, $links links, $((containers / 2)) pods' containers, $namespaces namespaces"
    [ "$held" = "$1 records, $1 links, $1 pods' containers, $1 namespaces" ]
}
count() {
    # What the agent has put away as well takes a moment longer, and minutes on a busy machine.
    within "hold what $1 pods have, and no more" is_all "$1"
    echo "@@power holds $held"
}

was_renewed() { [ "$conf" -nt /run/agent-started ] && grep -q "Withdrew the CNI conf" "$log"; }
are_fewer_than() { [ "$(get pods | jq --argjson n "$1" '.items | length < $n')" = true ]; }
are_recorded() { [ "$(records)" -gt "$1" ]; }

case $phase in
first)
    service
    write_manifests 1 2 3 4 5 6 7 8
    start
    settled 8
    count 8
    # Long enough for names to be on the disk, and too short for what is in the files.
    sleep 6
    echo "@@power idle"
    exec sleep 1000
    ;;
ending)
    start
    settled 8
    count 8
    within "withdraw the conf and write it again" was_renewed
    echo "@@power the conf was withdrawn and written again"
    (cd "$manifests" && rm pod-5.yaml pod-6.yaml pod-7.yaml pod-8.yaml && sync)
    pause=0.1
    within "end a pod" are_fewer_than 8
    echo "@@power some are gone"
    exec sleep 1000
    ;;
starting)
    start
    settled 4
    count 4
    write_manifests 5 6 7 8 9 10
    pause=0.1
    within "start some pods" are_recorded 6
    echo "@@power some have started"
    exec sleep 1000
    ;;
damaged)
    find /var/lib/seaway-agent /var/lib/seaway /var/lib/cni "$conf" -type f 2>/dev/null |
        while read -r file; do : >"$file" && echo "emptied $file"; done
    start
    settled 10
    count 10
    rm "$manifests"/pod-*
    settled 0
    count 0
    ;;
esac
