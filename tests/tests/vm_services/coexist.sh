# NetworkManager and systemd-networkd, one after the other, started and restarted beside us.
#
# Routes out of the uplink go with its address, and that is its owner's: systemd-networkd takes
# it away and puts it back whenever it is started, and the kernel drops the routes. The daemon
# brings them back. All the rest stays as it is.
. /seaway/files/lib.sh
SOON=5

# What others can take along with the uplink's address or by mistake: it has to come back.
routes() {
    ip route show table all proto 83
    ip rule show | sed -n '/proto 83/p'
}
routes_are_there() {
    routes >/run/routes
    cmp -s /run/routes-before /run/routes
}
remember() {
    udevadm settle
    ours >/run/before
    routes >/run/routes-before
    cat /run/before
    ip -o monitor link address neigh >/run/monitor &
    monitor=$!
}
# `same EVENT`: after it, the uplink being there.
same() {
    within 60 uplink || fail "the uplink is gone after $1"
    if ! within $SOON routes_are_there; then
        diff -u /run/routes-before /run/routes
        fail "routes and rules are not back soon after $1"
    fi
    sleep "$LASTING"
    ours >/run/now
    diff -u /run/before /run/now || fail "$1 has changed what is ours"
    grep -E 'Deleted .*(sw[0-9a-f]{12}|seaway\.vx)' /run/monitor | grep -v 'fe80:\|ff02:' &&
        fail "$1 has taken for a moment what is ours"
    [ "$(jq -r '.interfaces[0].mac' /run/pod-1.json)" = \
        "$(cat /sys/class/net/"$(jq -r '.interfaces[0].name' /run/pod-1.json)"/address)" ] ||
        fail "the MAC is not the one that ADD has reported"
    answers pod-2 "http://$pod_1/" pod-1 || fail "after $1 pod-1 does not answer pod-2"
    answers pod-2 "http://$pod_2/" pod-2 || fail "after $1 pod-2 does not answer itself"
    echo "$1: everything is as before; repairs so far: $(grep -c 'repaired it' /run/proxy.log)"
}

describe_uplink
systemctl start systemd-networkd || fail "systemd-networkd does not start"
within 60 uplink || fail "systemd-networkd has not configured the uplink"
two_more_nodes
daemon auto # overlay, probes of the direct paths
add pod-1
add pod-2
within 60 sh -c 'ip route show proto 83 | grep -q "10.244.3.0/24 via 10.244.3.1 dev seaway.vx"' ||
    fail "no pod network"
remember
[ "$(grep -c 'assigned 3' /run/before)" = 3 ] || fail "MACs are not set explicitly"

# Without our settings, and with a daemon that sleeps, so that it is seen what is lost.
kill -STOP $daemon
systemctl restart systemd-networkd
within 60 uplink || fail "the uplink is gone"
within 12 sh -c '! ip rule show | grep -q "lookup 83"'
routes >/run/routes
echo "without our settings, a restart of systemd-networkd takes:"
diff /run/routes-before /run/routes | tee /run/lost
grep -q 'lookup 83' /run/lost || fail "the settings are not needed any more: this test sees nothing"
kill -CONT $daemon
same "a restart of systemd-networkd without our settings"

/seaway/bin/seaway-proxy install --cni-bin-dir /opt/cni/bin 2>&1 || fail "install"
kill -STOP $daemon
systemctl restart systemd-networkd
within 60 uplink || fail "the uplink is gone"
within 12 sh -c '! ip rule show | grep -q "lookup 83"'
routes >/run/routes
echo "with our settings, a restart of systemd-networkd takes:"
diff /run/routes-before /run/routes | tee /run/lost
# No rule, and no route but those that the kernel drops with the address.
grep '^<' /run/lost | grep -v ' via 10\.0\.2\.' && fail "systemd-networkd takes more than its own"
kill -CONT $daemon
same "systemctl restart systemd-networkd"
systemctl reload-or-restart systemd-networkd
same "systemctl reload-or-restart systemd-networkd"
networkctl reload
same "networkctl reload"
networkctl reconfigure eth0
same "networkctl reconfigure eth0"
udevadm control --reload && udevadm trigger --action=add --subsystem-match=net && udevadm settle
same "udevadm trigger"

kill $monitor
rm /etc/systemd/network/50-eth0.network
systemctl stop systemd-networkd.socket systemd-networkd
kill $daemon && wait $daemon
daemon direct # routes to the other nodes on the uplink itself
within 60 sh -c 'ip route show proto 83 | grep -q "10.244.3.0/24 via 10.0.2.23 dev eth0"' ||
    fail "no direct routes"
remember
connected() { nmcli -t -f DEVICE,STATE device | grep -qx eth0:connected; }
systemctl start NetworkManager || fail "NetworkManager does not start"
within 60 connected || fail "NetworkManager has not configured the uplink: $(nmcli device)"
same "a start of NetworkManager"
nmcli -t -f DEVICE,STATE device | grep -E '^(sw|seaway)' | grep -v ':unmanaged$' &&
    fail "NetworkManager manages a link of ours"
systemctl restart NetworkManager
within 60 connected || fail "NetworkManager has not configured the uplink: $(nmcli device)"
same "a restart of NetworkManager"
nmcli general reload && nmcli device reapply eth0
same "nmcli reload and reapply"
