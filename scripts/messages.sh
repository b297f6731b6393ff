# SPDX-License-Identifier: GPL-2.0
#
# The messages of this project's scripts: one line a step, one clear line about an error, and the
# time of each step. Colours on a terminal only.
#
# SCIF_TIMES names a file into which every timed step puts a line "SECONDS NAME";
# "show_times" makes a table of it.
# shellcheck shell=bash

if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
	message_bold=$'\033[1m' message_red=$'\033[31m' message_off=$'\033[0m'
else
	message_bold='' message_red='' message_off=''
fi

step() {
	printf '%s==>%s %s\n' "$message_bold" "$message_off" "$*" >&2
}

die() {
	printf '%serror:%s %s\n' "$message_red" "$message_off" "$*" >&2
	exit 1
}

# Prints a unique name; process ids begin anew in every environment.
unique() {
	od -An -N4 -tx1 /dev/urandom | tr -d ' \n'
}

# Reports a step that has ended: "took SECONDS NAME".
took() {
	[ -z "${SCIF_TIMES:-}" ] || printf '%5d  %s\n' "$1" "$2" >>"$SCIF_TIMES"
	printf '    %s: %d s\n' "$2" "$1" >&2
}

# Runs a command as a step, which is announced and timed: "timed NAME COMMAND...".
timed() {
	local name=$1 started=$SECONDS status=0
	shift
	step "$name"
	"$@" || status=$?
	[ "$status" != 0 ] || took $((SECONDS - started)) "$name"
	return "$status"
}

# Prints the table of SCIF_TIMES, and the time since its first line was written.
show_times() { # SECONDS-IN-ALL
	[ -s "${SCIF_TIMES:-}" ] || return 0
	printf '\nSeconds of each step (parallel steps each count in full):\n' >&2
	cat "$SCIF_TIMES" >&2
	printf '%5d  in all\n' "$1" >&2
}

# Shows how far a build by Kbuild is: a line that rewrites itself on a terminal, a line every half
# minute elsewhere. Kbuild's output goes to LOG; TOTAL is the number of lines that compiler and
# linker print in such a build.
show_progress() { # NAME LOG TOTAL
	local terminal=0
	[ ! -t 2 ] || terminal=1
	perl -e '
		my ($name, $log_file, $total, $terminal) = @ARGV;
		open(my $log, ">>", $log_file) or die "$log_file: $!\n";
		my ($done, $started) = (0, time);
		my ($shown, $line) = ($started, "");
		sub report {
			my ($percent, $end) = @_;
			printf STDERR "%s    $name %3d%%  %4d steps  %4d s  %-40.40s%s",
			    $terminal ? "\r" : "", $percent, $done, time - $started, $line, $end;
		}
		while ($line = <STDIN>) {
			print $log $line;
			chomp $line;
			next unless $line =~ /^  [A-Z0-9]/;
			$done++;
			my $percent = int($done * 100 / $total);
			$percent = 99 if $percent > 99;
			if ($terminal) {
				report($percent, "");
			} elsif (time - $shown >= 30) {
				report($percent, "\n");
				$shown = time;
			}
		}
		$line = "done";
		report(100, "\n");
	' "$1" "$2" "$3" "$terminal"
}
