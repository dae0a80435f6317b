# firewalld reloaded, and all rules flushed, beside pods with a hostPort.
. /seaway/files/lib.sh
mkdir -p /run/manifests /opt/cni/bin
describe_uplink
cp /seaway/bin/seaway-cni /opt/cni/bin/
systemctl start systemd-networkd containerd || fail "a service does not start"
within 60 uplink || fail "the uplink is not configured"
/seaway/bin/seaway-agent standalone /run/manifests --node-name vm --node-ip $node \
    --service-proxy off --pod-cidr 10.244.1.0/24 >/run/agent.log 2>&1 &
within 60 test -e /etc/cni/net.d/05-seaway.conflist || fail "no CNI conf: $(tail -n 20 /run/agent.log)"
add pod-1 8080
add pod-2
outside

works() {
    answers outside http://192.0.2.1:8080/ pod-1 &&
        answers pod-2 http://$node:8080/ pod-1 &&
        [ "$(curl --silent --max-time $((2 * SLOW)) http://127.0.0.1:8080/)" = pod-1 ] &&
        ip netns exec pod-2 ping -q -c 1 -W 2 192.0.2.2 # it knows no way back to pods
}
after() {
    begun=$(cut -d . -f 1 /proc/uptime)
    if ! within "$INTERVAL" works; then
        set -x
        works
        set +x
        tail -n 20 /run/agent.log
        nft list ruleset | head -n 200
        fail "hostPort and masquerade do not work after $1"
    fi
    echo "after $1: works again within $(($(cut -d . -f 1 /proc/uptime) - begun)) s"
}
# The reconcile interval, and what the emulation needs for one look.
INTERVAL=45
after "the start"
systemctl start firewalld || fail "firewalld does not start"
# As the README asks for: pods are no strangers.
firewall-cmd --quiet --permanent --zone=trusted --add-source=10.244.1.0/24 || fail "firewall-cmd"
for round in 1 2; do
    firewall-cmd --quiet --reload || fail "firewalld does not reload"
    after "reload $round of firewalld"
done
systemctl restart firewalld
after "a restart of firewalld"
nft flush ruleset
after "nft flush ruleset"
iptables -F && iptables -t nat -F
after "iptables -F"
