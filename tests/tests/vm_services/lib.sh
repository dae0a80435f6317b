# A node with two pods and an uplink, for a machine with systemd; sourced.
node=10.0.2.15

fail() {
    echo "FAILED: $*"
    networkctl --no-pager --lines=0 status eth0
    journalctl --no-pager --quiet --lines=20 --unit=systemd-networkd --unit=NetworkManager
    tail -n 20 /run/proxy.log /run/agent.log 2>/dev/null
    exit 1
}
# How much slower than a machine everything is: it is emulated, and not alone.
SLOW=5
# Tries for so many seconds of a machine that is not.
within() {
    limit=$(($(cut -d . -f 1 /proc/uptime) + $1 * SLOW))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$(cut -d . -f 1 /proc/uptime)" -lt $limit ] || return 1
        sleep 0.5
    done
}
# `add POD [HOSTPORT]`
add() {
    ip netns add "$1"
    ports=
    [ -z "$2" ] || ports="\"runtimeConfig\":{\"portMappings\":[{\"hostPort\":$2,\"containerPort\":80,\"protocol\":\"tcp\"}]},"
    echo "{\"cniVersion\":\"1.0.0\",\"name\":\"seaway\",\"type\":\"seaway-cni\",$ports\"mtu\":1500,\"ipam\":{\"type\":\"seaway\",
\"ranges\":[{\"subnet\":\"10.244.1.0/24\"}],\"dataDir\":\"/run/seaway/cni\"}}" |
        CNI_COMMAND=ADD CNI_CONTAINERID="$1" CNI_NETNS="/run/netns/$1" CNI_IFNAME=eth0 \
            CNI_PATH=/seaway/bin /seaway/bin/seaway-cni >"/run/$1.json" || fail "ADD $1: $(cat "/run/$1.json")"
    address=$(jq -r '.ips[0].address' "/run/$1.json")
    mkdir -p "/run/www/$1"
    echo "$1" >"/run/www/$1/index.html"
    ip netns exec "$1" busybox httpd -p 80 -h "/run/www/$1"
    eval "$(echo "$1" | tr - _)=${address%/*}"
}
uplink() { ip -4 route show default | grep -q 'dev eth0' && ip -o addr show dev eth0 | grep -q "$node"; }
# The uplink as an operator describes it, to either service.
describe_uplink() {
    mkdir -p /etc/systemd/network
    printf '[Match]\nName=eth0\n[Network]\nAddress=%s/24\nGateway=10.0.2.2\n' $node \
        >/etc/systemd/network/50-eth0.network
    printf '[connection]\nid=uplink\ntype=ethernet\ninterface-name=eth0\n[ipv4]\nmethod=manual\naddress1=%s/24,10.0.2.2\n' \
        $node >/etc/NetworkManager/system-connections/uplink.nmconnection
    chmod 600 /etc/NetworkManager/system-connections/uplink.nmconnection
    within 60 test -e /sys/class/net/eth0 || fail "there is no network device"
    udevadm settle
}
# A client beyond the node that knows no way back to pods.
outside() {
    ip netns add outside
    ip link add out0 type veth peer name eth0 netns outside
    ip addr add 192.0.2.1/24 dev out0
    ip link set out0 up
    ip -n outside addr add 192.0.2.2/24 dev eth0
    ip -n outside link set eth0 up
    ip -n outside link set lo up
}
answers() { # NAMESPACE URL POD
    [ "$(ip netns exec "$1" curl --silent --max-time $((2 * SLOW)) "$2")" = "$3" ]
}
# What the kernel holds of ours: names, MACs, MTUs, addresses, routes of all tables, rules,
# neighbours.
ours() {
    ip -j -d link show | jq -c '.[] | select(.ifname | test("^(sw|seaway)")) | [.ifname, .address, .mtu, .flags]'
    for link in $(ip -o link show | sed -n 's/^[0-9]*: \(sw[^:@]*\|seaway[^:@]*\).*/\1/p'); do
        ip -o addr show dev "$link" | sed 's/^[0-9]*: //'
        ip neigh show dev "$link" nud permanent
        bridge fdb show dev "$link"
        echo "$link assigned $(cat "/sys/class/net/$link/addr_assign_type")"
    done
    ip route show table all proto 83
    ip -6 route show table all proto 83
    ip rule show | grep 'proto 83'
    for pod in pod-1 pod-2; do
        ip -n $pod -o addr show dev eth0 | sed 's/^[0-9]*: //'
        ip -n $pod route show
        ip -n $pod neigh show nud permanent
        ip -n $pod -j link show dev eth0 | jq -c '.[].address'
    done
}
# An API server that knows this node and two others, and never has any news.
two_more_nodes() {
    mkdir -p /run/www/api/cgi-bin
    for entry in vm/$node/1 b/10.0.2.22/2 c/10.0.2.23/3; do
        address=${entry#*/}
        cidr=10.244.${entry##*/}.0/24
        echo "{\"metadata\":{\"name\":\"${entry%%/*}\"},\"spec\":{\"podCIDR\":\"$cidr\",\"podCIDRs\":[\"$cidr\"]},
\"status\":{\"addresses\":[{\"type\":\"InternalIP\",\"address\":\"${address%/*}\"}]}}"
    done | jq -s '{metadata: {resourceVersion: "1"}, items: .}' >/run/www/nodes.json
    cat >/run/www/api/cgi-bin/server <<'END'
#!/bin/sh
printf 'Content-Type: application/json\n\n'
case $QUERY_STRING/$PATH_INFO in
*watch=*) exec sleep 1000000 ;;
*/nodes) cat /run/www/nodes.json ;;
*) echo '{"metadata":{"resourceVersion":"1"},"items":[]}' ;;
esac
END
    chmod +x /run/www/api/cgi-bin/server
    cat >/run/kubeconfig <<'END'
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'http://127.0.0.1:8001/cgi-bin/server'}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: {}}]
END
    busybox httpd -p 127.0.0.1:8001 -h /run/www/api
}
# `daemon MODE`: of the pod network's routes.
daemon() {
    /seaway/bin/seaway-proxy run --kubeconfig /run/kubeconfig --node-name vm --service-proxy off \
        --pod-network on --cluster-cidr 10.244.0.0/16 --pod-routes "$1" >>/run/proxy.log 2>&1 &
    daemon=$!
}
