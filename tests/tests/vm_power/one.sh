# One call of the plugin, as a runtime makes it: `one.sh ADD|DEL POD`.
verb=$1 pod=$2
conf='{"cniVersion":"1.0.0","name":"power","type":"seaway-cni","mtu":1500,
"ipam":{"type":"seaway","ranges":[{"subnet":"10.9.0.0/26"}],"dataDir":"/run/seaway/cni","sticky":true}}'
[ "$verb" = DEL ] || ip netns add "$pod" || exit 1
# A sandbox of another boot has another id.
export CNI_COMMAND=$verb CNI_CONTAINERID=$pod-$(cut -c 1-8 /proc/sys/kernel/random/boot_id)
export CNI_NETNS=/run/netns/$pod CNI_IFNAME=eth0 CNI_PATH=/seaway/bin
export CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=$pod"
result=$(echo "$conf" | /seaway/bin/seaway-cni) || { echo "@@power failed $verb $pod $result"; exit 1; }
[ "$verb" = ADD ] || ip netns del "$pod" || exit 1
address=$(echo "$result" | sed -n 's/.*"address": *"\([0-9.]*\).*/\1/p')
# One write: the console shows it whole, or not at all.
echo "@@power $verb $pod $address"
