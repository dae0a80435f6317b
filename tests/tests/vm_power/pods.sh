# A node without a control plane: `pods.sh PHASE`.
phase=$1
conf=/etc/cni/net.d/05-seaway.conflist manifests=/etc/seaway/manifests log=/run/agent.log
mkdir -p /opt/cni/bin "$manifests"
cmp -s /seaway/bin/seaway-cni /opt/cni/bin/seaway-cni || cp /seaway/bin/seaway-cni /opt/cni/bin/
ln -sf seaway-cni /opt/cni/bin/loopback

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
start() {
    containerd --config /seaway/files/containerd.toml --log-level error >/run/containerd.log 2>&1 &
    until ctr version >/dev/null 2>&1; do sleep 0.2; done
    [ "$(ctr -n k8s.io images ls -q | grep -c '^seaway.test')" = 2 ] ||
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
pods() { /seaway/bin/seaway-agent get pods --output json 2>/dev/null; }
# Waits until exactly so many pods are there, all of them ready.
settled() {
    tries=0
    # An agent that does not serve yet says nothing, and jq has nothing against that.
    until [ "$(pods | jq --argjson n "$1" '.items | length == $n and all(.[];
        any(.status.conditions[]?; .type == "Ready" and .status == "True"))')" = true ]; do
        tries=$((tries + 1))
        if [ $tries = 300 ]; then
            echo "@@power failed to settle"
            pods | jq -c '.items[] | [.metadata.name, .status]'
            tail -n 40 "$log"
            tail -n 20 /run/containerd.log
            exit 1
        fi
        sleep 2
    done
    pods | jq -r '.items[] | "@@power pod \(.metadata.name) \(.status.podIP)"'
    service=$(/seaway/bin/seaway-agent get services --output json | jq -r '.items[] | .spec.clusterIP')
    echo "@@power service $service"
}
count() {
    # What the agent has put away as well takes a moment longer, and minutes on a busy machine.
    tries=0
    while
        held=$(ls /run/seaway/cni/seaway/*/ | grep -c =)
        links=$(ip -o link show | grep -c ': sw')
        containers=$(ctr -n k8s.io containers ls -q | wc -l)
        namespaces=$(ls /run/netns | wc -l)
        now="$held records, $links links, $((containers / 2)) pods' containers, $namespaces namespaces"
        [ "$now" != "$1 records, $1 links, $1 pods' containers, $1 namespaces" ] && [ $tries != 240 ]
    do
        tries=$((tries + 1))
        sleep 1
    done
    echo "@@power holds $now"
}

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
    [ "$conf" -nt /run/agent-started ] && grep -q "Withdrew the CNI conf" "$log" &&
        echo "@@power the conf was withdrawn and written again"
    (cd "$manifests" && rm pod-5.yaml pod-6.yaml pod-7.yaml pod-8.yaml && sync)
    until [ "$(pods | jq '.items | length < 8')" = true ]; do sleep 0.1; done
    echo "@@power some are gone"
    exec sleep 1000
    ;;
starting)
    start
    settled 4
    count 4
    write_manifests 5 6 7 8 9 10
    until [ "$(ls /run/seaway/cni/seaway/*/ | grep -c =)" -gt 6 ]; do sleep 0.1; done
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
