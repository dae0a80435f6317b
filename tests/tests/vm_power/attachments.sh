# Fifty pods without a runtime: `attachments.sh PHASE`.
phase=$1 dir=/var/lib/seaway/cni/power

# In another order each time, four at once.
all() {
    seq -f pod-%g 1 50 | shuf | xargs -P 4 -n 1 sh /seaway/files/one.sh "$1"
}
count() {
    echo "@@power holds $(ls /run/seaway/cni/power/*/ | grep -c =) records in \
$(ls -d /run/seaway/cni/power/*/ | wc -l) boots, $(ip -o link show | grep -c ': sw') links, \
$(ip route show proto 83 | wc -l) routes"
}
if [ "$phase" = damaged ]; then
    # What a power cut can leave of a folder: names without content, and names of nothing.
    touch "$dir/10.9.0.9" "$dir/=" "$dir/10.9.0.300=default_pod-1" "$dir/.new-17"
    mkdir -p "$dir/10.9.0.61=default_folder" /run/seaway/cni/power/another-boot
    touch "/run/seaway/cni/power/another-boot/10.9.0.2=x:eth0"
    : >/run/seaway/cni/power/lock
fi
all ADD
count
echo "@@power all added"
case $phase in
adding | idle) exec sleep 1000 ;;
deleting) all DEL; exec sleep 1000 ;;
damaged) all DEL; count ;;
esac
