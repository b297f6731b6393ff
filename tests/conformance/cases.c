// SPDX-License-Identifier: GPL-2.0
/*
 * The parts of the conformance suite.
 */
#include "../harness/suite.h"

static const struct test_case *const all_cases[] = {
	nodes_cases,
	bind_listen_cases,
	connect_cases,
	accept_cases,
	send_receive_cases,
	poll_cases,
	close_cases,
	register_cases,
	unregister_cases,
	memory_cases,
	device_cases,
	transfer_cases,
	fence_cases,
	mapping_cases,
	process_cases,
	abi_cases,
	names_cases,
	send_all_cases,
	status_cases,
	star_cases,
	NULL,
};

const struct suite suite = {
	.name = "conformance",
	.about_rules =
		"Every sentence of the specification that can be tested, and the cases that test it.\n"
		"Sources: the specification by part (ABI, semantics, security), the header of the\n"
		"original kernel interface, its manual pages, and decisions of this project.\n",
	.cases = all_cases,
	.agent_port = 2000,
};
