// SPDX-License-Identifier: GPL-2.0
/*
 * The parts of the SISCI suite.
 */
#include "sisci_suite.h"

static const struct test_case *const all_cases[] = {
	library_cases,
	handle_cases,
	symbol_cases,
	query_cases,
	segment_cases,
	share_cases,
	connect_segment_cases,
	event_cases,
	callback_cases,
	map_cases,
	data_cases,
	sequence_cases,
	copy_cases,
	dma_cases,
	dma_more_cases,
	interrupt_cases,
	interrupt_more_cases,
	data_interrupt_cases,
	broadcast_cases,
	process_end_cases,
	fork_cases,
	hostile_cases,
	thread_cases,
	guide_cases,
	NULL,
};

const struct suite suite = {
	.name = "sisci-conformance",
	.about_rules =
		"Every sentence on SISCI that can be tested, and the cases that test it.\n"
		"Sources: the SISCI Users Guide by chapter, the behaviour beyond it on which programs\n"
		"rely, the headers, and Documentation/sisci.rst, which has precedence.\n",
	.cases = all_cases,
	.agent_port = 2001,
	.operation = sisci_operation,
};
