#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Loads, unloads and kills clients of SCIF in the middle of transfers (tests/modules/churn), many
# times, in a guest:
#
#	scif_churn.sh client SERVER ROUNDS MODULES	against the server of node SERVER
#	scif_churn.sh server MODULES [SCIF PARAMETERS]	until there is /tmp/churn-over
#
# MODULES is the folder with the test's modules. With SCIF, the file of the module under test, the
# server has that one loaded anew as well each time. Nothing here goes by time: whatever is ended has
# made a number of transfers before, which is another one each time.
set -eu

role=$1
shift
over=/tmp/churn-over
transfers=/sys/module/scif_churn/parameters/transfers

is_loaded() { # MODULE
	grep -q "^$1 " /proc/modules
}

# How many it takes to end something in that round.
some() { # ROUND
	echo $(($1 * 37 % 60 + 1))
}

await_transfers() { # COUNT
	made=0
	until [ "$made" -ge "$1" ] || [ -e "$over" ]; do
		sleep 0.02
		read -r made 2>/dev/null <"$transfers" || made=0
	done
}

loaded_and_unloaded() { # ROUND PARAMETER...
	seed=$1
	shift
	insmod "$modules/scif_churn.ko" seed="$seed" "$@"
	await_transfers "$(some "$seed")"
	rmmod scif_churn
}

killed_in_init() { # ROUND
	insmod "$modules/scif_churn.ko" role=client node="$server" seed="$1" in_init=1 \
		2>/dev/null &
	await_transfers "$(some "$1")"
	kill -9 $!
	wait $! || true
	while is_loaded scif_churn; do
		sleep 0.02
	done
}

programs_killed() { # ROUND
	for number in 1 2; do
		: >/tmp/churn-$number
		"${0%.sh}" "$server" 3300 >/tmp/churn-$number &
		eval "program_$number=$!"
	done
	for number in 1 2; do
		until [ "$(wc -l </tmp/churn-$number)" -ge $(($1 % 7 + 1)) ]; do
			sleep 0.02
		done
	done
	kill -9 "$program_1" "$program_2"
	wait || true
}

client() {
	server=$1 rounds=$2 modules=$3
	for round in $(seq "$rounds"); do
		case $((round % 5)) in
		0) loaded_and_unloaded "$round" role=both ;;
		1) loaded_and_unloaded "$round" role=client node="$server" ;;
		2) loaded_and_unloaded "$round" role=client node="$server" forgets=1 ;;
		3) killed_in_init "$round" ;;
		4) programs_killed "$round" ;;
		esac
	done
}

server() {
	modules=$1 scif=${2:-}
	[ $# -lt 2 ] || shift 2
	round=0
	until [ -e "$over" ]; do
		round=$((round + 1))
		insmod "$modules/scif_churn.ko" role=server seed=$round
		[ $round -gt 1 ] || echo serving
		await_transfers "$(some $round)"
		rmmod scif_churn
		if [ "$scif" ]; then
			rmmod scif
			insmod "$scif" "$@"
		fi
	done
	echo "$round servers"
}

"$role" "$@"
