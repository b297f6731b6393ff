/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints for trace-cmd, perf and BPF, such as scif:scif_connect.
 * sys/trace.rs calls them, and Documentation/parameters.rst explains them.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM scif

#if !defined(_SCIF_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _SCIF_TRACE_H

#include <linux/tracepoint.h>

#include "sys/trace_fields.h"

/* The values are those of the interface, as in arguments.rs. */
#define scif_show_protection(protection)				\
	__print_flags(protection, "|",					\
		      { 1, "READ" },					\
		      { 2, "WRITE" })

#define scif_show_rma_flags(flags)					\
	__print_flags(flags, "|",					\
		      { 1, "USECPU" },					\
		      { 2, "USECACHE" },				\
		      { 4, "SYNC" },					\
		      { 8, "ORDERED" })

DECLARE_EVENT_CLASS(scif_connection,
		    TP_PROTO(const struct scif_trace_connection *fields),
		    TP_ARGS(fields),
		    TP_STRUCT__entry(__field(u16, node)
				     __field(u16, own_port)
				     __field(u16, peer_port)
				     __field(u32, channel)
				     __field(int, result)),
		    TP_fast_assign(__entry->node = fields->node;
				   __entry->own_port = fields->own_port;
				   __entry->peer_port = fields->peer_port;
				   __entry->channel = fields->channel;
				   __entry->result = fields->result;),
		    TP_printk("node=%u channel=%#x own_port=%u peer_port=%u result=%d",
			      __entry->node, __entry->channel,
			      __entry->own_port, __entry->peer_port,
			      __entry->result));

#define SCIF_CONNECTION_EVENT(name)					\
DEFINE_EVENT(scif_connection, name,					\
	     TP_PROTO(const struct scif_trace_connection *fields),	\
	     TP_ARGS(fields))

SCIF_CONNECTION_EVENT(scif_connect);
SCIF_CONNECTION_EVENT(scif_connect_done);
SCIF_CONNECTION_EVENT(scif_accept);
SCIF_CONNECTION_EVENT(scif_close);
SCIF_CONNECTION_EVENT(scif_peer_closed);
SCIF_CONNECTION_EVENT(scif_lost);

DECLARE_EVENT_CLASS(scif_message,
		    TP_PROTO(const struct scif_trace_message *fields),
		    TP_ARGS(fields),
		    TP_STRUCT__entry(__field(u16, node)
				     __field(u32, channel)
				     __field(u64, wanted)
				     __field(u64, moved)
				     __field(u32, fill)
				     __field(bool, blocks)
				     __field(int, result)),
		    TP_fast_assign(__entry->node = fields->node;
				   __entry->channel = fields->channel;
				   __entry->wanted = fields->wanted;
				   __entry->moved = fields->moved;
				   __entry->fill = fields->fill;
				   __entry->blocks = fields->blocks;
				   __entry->result = fields->result;),
		    TP_printk("node=%u channel=%#x wanted=%llu moved=%llu fill=%u blocks=%d result=%d",
			      __entry->node, __entry->channel, __entry->wanted,
			      __entry->moved, __entry->fill, __entry->blocks,
			      __entry->result));

#define SCIF_MESSAGE_EVENT(name)					\
DEFINE_EVENT(scif_message, name,					\
	     TP_PROTO(const struct scif_trace_message *fields),		\
	     TP_ARGS(fields))

SCIF_MESSAGE_EVENT(scif_send);
SCIF_MESSAGE_EVENT(scif_receive);

DECLARE_EVENT_CLASS(scif_window,
		    TP_PROTO(const struct scif_trace_window *fields),
		    TP_ARGS(fields),
		    TP_STRUCT__entry(__field(u16, node)
				     __field(u32, channel)
				     __field(s64, offset)
				     __field(u64, len)
				     __field(u32, protection)
				     __field(int, result)),
		    TP_fast_assign(__entry->node = fields->node;
				   __entry->channel = fields->channel;
				   __entry->offset = fields->offset;
				   __entry->len = fields->len;
				   __entry->protection = fields->protection;
				   __entry->result = fields->result;),
		    TP_printk("node=%u channel=%#x offset=%#llx len=%llu protection=%s result=%d",
			      __entry->node, __entry->channel, __entry->offset,
			      __entry->len,
			      scif_show_protection(__entry->protection),
			      __entry->result));

#define SCIF_WINDOW_EVENT(name)						\
DEFINE_EVENT(scif_window, name,						\
	     TP_PROTO(const struct scif_trace_window *fields),		\
	     TP_ARGS(fields))

SCIF_WINDOW_EVENT(scif_register);
SCIF_WINDOW_EVENT(scif_unregister);

TRACE_EVENT(scif_rma_submit,
	    TP_PROTO(const struct scif_trace_rma *fields),
	    TP_ARGS(fields),
	    TP_STRUCT__entry(__field(u16, node)
			     __field(u32, channel)
			     __field(u64, number)
			     __field(bool, write)
			     __field(bool, engine)
			     __field(s64, local)
			     __field(s64, remote)
			     __field(u64, len)
			     __field(u32, flags)),
	    TP_fast_assign(__entry->node = fields->node;
			   __entry->channel = fields->channel;
			   __entry->number = fields->number;
			   __entry->write = fields->write;
			   __entry->engine = fields->engine;
			   __entry->local = fields->local;
			   __entry->remote = fields->remote;
			   __entry->len = fields->len;
			   __entry->flags = fields->flags;),
	    TP_printk("node=%u channel=%#x number=%llu %s by=%s local=%lld remote=%#llx len=%llu flags=%s",
		      __entry->node, __entry->channel, __entry->number,
		      __entry->write ? "write" : "read",
		      __entry->engine ? "engine" : "cpu", __entry->local,
		      __entry->remote, __entry->len,
		      scif_show_rma_flags(__entry->flags)));

TRACE_EVENT(scif_rma_complete,
	    TP_PROTO(const struct scif_trace_rma_end *fields),
	    TP_ARGS(fields),
	    TP_STRUCT__entry(__field(u16, node)
			     __field(u32, channel)
			     __field(u64, number)
			     __field(bool, write)
			     __field(u64, len)
			     __field(int, result)),
	    TP_fast_assign(__entry->node = fields->node;
			   __entry->channel = fields->channel;
			   __entry->number = fields->number;
			   __entry->write = fields->write;
			   __entry->len = fields->len;
			   __entry->result = fields->result;),
	    TP_printk("node=%u channel=%#x number=%llu %s len=%llu result=%d",
		      __entry->node, __entry->channel, __entry->number,
		      __entry->write ? "write" : "read", __entry->len,
		      __entry->result));

DECLARE_EVENT_CLASS(scif_fence,
		    TP_PROTO(const struct scif_trace_fence *fields),
		    TP_ARGS(fields),
		    TP_STRUCT__entry(__field(u16, node)
				     __field(u32, channel)
				     __field(bool, peer)
				     __field(s32, mark)
				     __field(int, result)),
		    TP_fast_assign(__entry->node = fields->node;
				   __entry->channel = fields->channel;
				   __entry->peer = fields->peer;
				   __entry->mark = fields->mark;
				   __entry->result = fields->result;),
		    TP_printk("node=%u channel=%#x of=%s mark=%#x result=%d",
			      __entry->node, __entry->channel,
			      __entry->peer ? "peer" : "self", __entry->mark,
			      __entry->result));

#define SCIF_FENCE_EVENT(name)						\
DEFINE_EVENT(scif_fence, name,						\
	     TP_PROTO(const struct scif_trace_fence *fields),		\
	     TP_ARGS(fields))

SCIF_FENCE_EVENT(scif_fence_mark);
SCIF_FENCE_EVENT(scif_fence_wait);
SCIF_FENCE_EVENT(scif_fence_wait_done);

TRACE_EVENT(scif_fence_signal,
	    TP_PROTO(const struct scif_trace_signal *fields),
	    TP_ARGS(fields),
	    TP_STRUCT__entry(__field(u16, node)
			     __field(u32, channel)
			     __field(bool, peer)
			     __field(s64, local)
			     __field(s64, remote)
			     __field(int, result)),
	    TP_fast_assign(__entry->node = fields->node;
			   __entry->channel = fields->channel;
			   __entry->peer = fields->peer;
			   __entry->local = fields->local;
			   __entry->remote = fields->remote;
			   __entry->result = fields->result;),
	    TP_printk("node=%u channel=%#x of=%s local=%lld remote=%lld result=%d",
		      __entry->node, __entry->channel,
		      __entry->peer ? "peer" : "self", __entry->local,
		      __entry->remote, __entry->result));

TRACE_EVENT(scif_fence_signal_done,
	    TP_PROTO(const struct scif_trace_signal_end *fields),
	    TP_ARGS(fields),
	    TP_STRUCT__entry(__field(u16, node)
			     __field(u32, channel)
			     __field(u64, number)
			     __field(bool, failed)),
	    TP_fast_assign(__entry->node = fields->node;
			   __entry->channel = fields->channel;
			   __entry->number = fields->number;
			   __entry->failed = fields->failed;),
	    TP_printk("node=%u channel=%#x number=%llu failed=%d",
		      __entry->node, __entry->channel, __entry->number,
		      __entry->failed));

DECLARE_EVENT_CLASS(scif_link,
		    TP_PROTO(const struct scif_trace_link *fields),
		    TP_ARGS(fields),
		    TP_STRUCT__entry(__string_len(link, fields->link, fields->link_len)
				     __field(u16, node)
				     __field(u64, generation)
				     __string_len(said, fields->said, fields->said_len)),
		    TP_fast_assign(__assign_str(link);
				   __entry->node = fields->node;
				   __entry->generation = fields->generation;
				   __assign_str(said);),
		    TP_printk("link=%s node=%u generation=%016llx %s",
			      __get_str(link), __entry->node,
			      __entry->generation, __get_str(said)));

#define SCIF_LINK_EVENT(name)						\
DEFINE_EVENT(scif_link, name,						\
	     TP_PROTO(const struct scif_trace_link *fields),		\
	     TP_ARGS(fields))

SCIF_LINK_EVENT(scif_link_up);
SCIF_LINK_EVENT(scif_link_down);
SCIF_LINK_EVENT(scif_node_lost);

#endif /* _SCIF_TRACE_H */

/* -I in Kbuild finds the file, in a kernel tree and out of it. */
#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
