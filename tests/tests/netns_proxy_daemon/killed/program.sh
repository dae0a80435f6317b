#!/bin/sh
# Stands before a program that writes for the daemon. The file `at` says what it does: nothing
# without it, else one line of
#
#   trace                            notes the calls of the program, and from the first one on
#                                    the daemon's
#   PROGRAM both CALL COUNT          kills both before this call is carried out
#   PROGRAM mute - BYTES             the program hears no more than that, then the daemon dies
#   PROGRAM daemon CALL COUNT [PATH] kills the daemon before a call of its own after this
#
# Of ipset, PROGRAM has the first word of its input as well.
cd @folder@ || exit
[ -e at ] || exec @real@ "$@"
read -r program how call count path < at
input=in.$$
cat > $input
# What is tried out at a start leaves no more than a chain, and would take the place of the
# first write that counts.
if grep -q SEAWAY-NET-probe $input; then
    exec @real@ "$@" < $input
fi
own=@name@
[ $own != ipset ] || own=ipset-$(head -n 1 $input | cut -d' ' -f1)

# Each thread that the daemon has by now is traced with these options, and not its programs.
# By nobody's child: a strace that takes the place of this shell waits for all of its own.
trace_daemon() {
    (strace "$@" -p "$(ls /proc/$PPID/task)" < /dev/null > /dev/null 2>&1 &)
    waited=0
    while [ $waited -lt 500 ] && grep -qs '^TracerPid:.0$' /proc/$PPID/task/*/status; do
        sleep 0.01
        waited=$((waited + 1))
    done
}

if [ "$program" = trace ]; then
    cp $input "in.$own"
    if [ "$own" = ipset-create ]; then
        trace_daemon -ttt -y -o log.daemon -e 'trace=sendto,openat,write,?unlink,?unlinkat'
    fi
    exec strace -A -ttt -o "log.$own" -e trace=sendto,sendmsg,setsockopt @real@ "$@" < $input
fi
[ "$program" = "$own" ] || exec @real@ "$@" < $input

case $how in
both)
    strace -o /dev/null -e "trace=$call" -e "inject=$call:signal=KILL:when=$count" \
        @real@ "$@" < $input
    code=$?
    [ $code != 137 ] || kill -9 $PPID
    exit $code
    ;;
mute)
    head -c "$count" $input | @real@ "$@"
    kill -9 $PPID
    exit 1
    ;;
daemon)
    trace_daemon -o /dev/null -e "trace=$call" -e "inject=$call:signal=KILL:when=$count" \
        ${path:+-P "$path"}
    exec @real@ "$@" < $input
    ;;
esac
