// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit tests of linux/scif.h within this node, as a client uses it: the names
 * that other modules call, with the types of C. The rules that need a second
 * module are tested by tests/modules/client_test.
 *
 * Each test has a connection, and memory for a window at either end.
 */

#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/scif.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#define PAGES 2
#define SIZE (PAGES * PAGE_SIZE)
#define READ_WRITE (SCIF_PROT_READ | SCIF_PROT_WRITE)

struct link {
	struct work_struct connecting;
	int connected;
	struct scif_port_id to;
	scif_epd_t listener;
	scif_epd_t near;
	scif_epd_t far;
	/* Memory of the windows of both ends. */
	u8 *ours;
	u8 *theirs;
};

static u16 this_node(void)
{
	u16 self = 0;

	scif_get_node_ids(NULL, 0, &self);
	return self;
}

static void connect_near(struct work_struct *work)
{
	struct link *link = container_of(work, struct link, connecting);

	link->connected = scif_connect(link->near, &link->to);
}

static void close_if_open(scif_epd_t *epd)
{
	if (*epd)
		scif_close(*epd);
	*epd = NULL;
}

static int link_up(struct link *link)
{
	struct scif_port_id peer;
	int ret;

	ret = scif_bind(link->listener, 0);
	if (ret < 0)
		return ret;
	link->to.node = this_node();
	link->to.port = ret;
	ret = scif_listen(link->listener, 1);
	if (ret)
		return ret;
	queue_work(system_dfl_wq, &link->connecting);
	ret = scif_accept(link->listener, &peer, &link->far, SCIF_ACCEPT_SYNC);
	/* If accept has failed, this refuses the request and so ends its wait. */
	close_if_open(&link->listener);
	flush_work(&link->connecting);
	return ret ?: link->connected;
}

static int link_init(struct kunit *test)
{
	struct link *link = kunit_kzalloc(test, sizeof(*link), GFP_KERNEL);

	if (!link)
		return -ENOMEM;
	test->priv = link;
	INIT_WORK(&link->connecting, connect_near);
	link->listener = scif_open();
	link->near = scif_open();
	link->ours = vzalloc(SIZE);
	link->theirs = vzalloc(SIZE);
	if (!link->listener || !link->near || !link->ours || !link->theirs)
		return -ENOMEM;
	return link_up(link);
}

static void link_exit(struct kunit *test)
{
	struct link *link = test->priv;

	if (!link)
		return;
	close_if_open(&link->listener);
	close_if_open(&link->near);
	close_if_open(&link->far);
	vfree(link->ours);
	vfree(link->theirs);
}

/* Registers a window at an end and returns its offset. */
static off_t open_window(struct kunit *test, scif_epd_t epd, void *memory)
{
	off_t offset = scif_register(epd, memory, SIZE, 0, READ_WRITE,
				     SCIF_MAP_KERNEL);

	KUNIT_ASSERT_GT(test, offset, 0);
	return offset;
}

/* --- Nodes --- */

/* Events of one node: others may come and go while tests run. */
static struct {
	int probed;
	int removed;
	u16 node;
} seen;

static void count_probe(struct scif_peer_dev *spdev)
{
	if (spdev->dnode == seen.node)
		seen.probed++;
}

static void count_remove(struct scif_peer_dev *spdev)
{
	if (spdev->dnode == seen.node)
		seen.removed++;
}

static struct scif_client client = {
	.name = "scif_kunit",
	.probe = count_probe,
	.remove = count_remove,
};

static void registered_client_is_told_of_this_node(struct kunit *test)
{
	int again, times;

	/* Each registration reports the node again. */
	seen.node = this_node();
	seen.probed = 0;
	seen.removed = 0;
	for (times = 1; times <= 2; times++) {
		KUNIT_ASSERT_EQ(test, scif_client_register(&client), 0);
		again = scif_client_register(&client);
		KUNIT_EXPECT_EQ(test, seen.probed, times);
		KUNIT_EXPECT_EQ(test, seen.removed, times - 1);
		scif_client_unregister(&client);
		KUNIT_EXPECT_EQ(test, again, -EEXIST);
		KUNIT_EXPECT_EQ(test, seen.probed, times);
		KUNIT_EXPECT_EQ(test, seen.removed, times);
	}
}

/* --- Connections --- */

static void invalid_endpoint_is_refused(struct kunit *test)
{
	struct scif_port_id peer;
	scif_epd_t epd;

	KUNIT_EXPECT_EQ(test, scif_close(NULL), -EBADF);
	KUNIT_EXPECT_EQ(test, scif_bind(NULL, 0), -EBADF);
	KUNIT_EXPECT_EQ(test, scif_send(NULL, &peer, 1, 0), -EBADF);
	epd = scif_open();
	KUNIT_ASSERT_NOT_NULL(test, epd);
	KUNIT_EXPECT_EQ(test, scif_recv(epd, &peer, 1, 0), -ENOTCONN);
	KUNIT_EXPECT_EQ(test, scif_connect(epd, NULL), -EINVAL);
	KUNIT_EXPECT_EQ(test, scif_accept(epd, &peer, NULL, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, scif_close(epd), 0);
}

static void bytes_sent_by_one_end_are_received_by_the_other(struct kunit *test)
{
	struct link *link = test->priv;
	struct scif_pollepd polled = { .epd = link->far, .events = POLLIN };
	char text[8] = {};

	KUNIT_EXPECT_EQ(test, scif_recv(link->far, text, 4, 0), 0);
	KUNIT_EXPECT_EQ(test, scif_poll(&polled, 1, 0), 0);
	KUNIT_EXPECT_EQ(test, scif_send(link->near, "scif", 4, SCIF_SEND_BLOCK), 4);
	KUNIT_EXPECT_EQ(test, scif_poll(&polled, 1, -1), 1);
	KUNIT_EXPECT_EQ(test, polled.revents, POLLIN);
	KUNIT_EXPECT_EQ(test, scif_recv(link->far, text, 3, SCIF_RECV_BLOCK), 3);
	KUNIT_EXPECT_EQ(test, scif_recv(link->far, text + 3, 1, SCIF_RECV_BLOCK), 1);
	KUNIT_EXPECT_STREQ(test, text, "scif");
	KUNIT_EXPECT_EQ(test, scif_send(link->near, text, 4, 2), -EINVAL);
	KUNIT_EXPECT_EQ(test, scif_send(link->near, text, -1, 0), -EINVAL);
}

static void close_is_reported_to_the_other_end(struct kunit *test)
{
	struct link *link = test->priv;
	char text[8] = {};

	KUNIT_EXPECT_EQ(test, scif_send(link->near, "rest", 4, SCIF_SEND_BLOCK), 4);
	close_if_open(&link->near);
	KUNIT_EXPECT_EQ(test, scif_recv(link->far, text, 8, SCIF_RECV_BLOCK), 4);
	KUNIT_EXPECT_STREQ(test, text, "rest");
	KUNIT_EXPECT_EQ(test, scif_recv(link->far, text, 8, SCIF_RECV_BLOCK),
			-ECONNRESET);
	KUNIT_EXPECT_EQ(test, scif_send(link->far, text, 1, SCIF_SEND_BLOCK),
			-ECONNRESET);
}

/* --- Memory --- */

static void invalid_kernel_memory_registration_is_refused(struct kunit *test)
{
	struct link *link = test->priv;
	off_t offset = open_window(test, link->near, link->ours);

	/* Without SCIF_MAP_KERNEL, the address would be one of the process. */
	KUNIT_EXPECT_EQ(test, scif_register(link->near, link->ours, SIZE, 0,
					    READ_WRITE, 0), -EINVAL);
	KUNIT_EXPECT_EQ(test, scif_register(link->near, link->ours + 1, PAGE_SIZE, 0,
					    READ_WRITE, SCIF_MAP_KERNEL), -EINVAL);
	KUNIT_EXPECT_EQ(test, scif_register(link->near, link->ours, SIZE, offset,
					    READ_WRITE,
					    SCIF_MAP_KERNEL | SCIF_MAP_FIXED), -EADDRINUSE);
	KUNIT_EXPECT_EQ(test, scif_unregister(link->near, offset, SIZE), 0);
	KUNIT_EXPECT_EQ(test, scif_unregister(link->near, offset, SIZE), -ENXIO);
}

static void transfers_copy_between_windows_and_memory(struct kunit *test)
{
	struct link *link = test->priv;
	off_t local = open_window(test, link->near, link->ours);
	off_t remote = open_window(test, link->far, link->theirs);
	u8 *lent = kunit_kzalloc(test, 16, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, lent);
	memset(link->ours, 1, SIZE);
	KUNIT_EXPECT_EQ(test, scif_writeto(link->near, local + 1, 3, remote + PAGE_SIZE - 2,
					   SCIF_RMA_SYNC), 0);
	KUNIT_EXPECT_MEMEQ(test, link->theirs + PAGE_SIZE - 3, "\0\1\1\1\0", 5);
	memset(link->theirs, 2, SIZE);
	KUNIT_EXPECT_EQ(test, scif_readfrom(link->near, local, 2, remote, SCIF_RMA_SYNC), 0);
	KUNIT_EXPECT_MEMEQ(test, link->ours, "\2\2\1", 3);
	KUNIT_EXPECT_EQ(test, scif_vreadfrom(link->near, lent + 1, 2, remote,
					     SCIF_RMA_SYNC), 0);
	KUNIT_EXPECT_MEMEQ(test, lent, "\0\2\2\0", 4);
	KUNIT_EXPECT_EQ(test, scif_vwriteto(link->near, lent, 2, remote, SCIF_RMA_SYNC), 0);
	KUNIT_EXPECT_MEMEQ(test, link->theirs, "\0\2\2", 3);
	KUNIT_EXPECT_EQ(test, scif_writeto(link->near, local, 1, remote, 16), -EINVAL);
	KUNIT_EXPECT_EQ(test, scif_writeto(link->near, local, 1, remote + SIZE,
					   SCIF_RMA_SYNC), -ENXIO);
}

static void fence_calls_work_and_refuse_invalid_arguments(struct kunit *test)
{
	struct link *link = test->priv;
	off_t local = open_window(test, link->near, link->ours);
	off_t remote = open_window(test, link->far, link->theirs);
	int flags, mark;

	KUNIT_EXPECT_EQ(test, scif_writeto(link->near, local, SIZE, remote, 0), 0);
	for (flags = SCIF_FENCE_INIT_SELF; flags <= SCIF_FENCE_INIT_PEER; flags++) {
		mark = 0;
		KUNIT_EXPECT_EQ(test, scif_fence_mark(link->near, flags, &mark), 0);
		KUNIT_EXPECT_GT(test, mark, 0);
		KUNIT_EXPECT_EQ(test, scif_fence_wait(link->near, mark), 0);
	}
	KUNIT_EXPECT_EQ(test, scif_fence_mark(link->near, 3, &mark), -EINVAL);
	KUNIT_EXPECT_EQ(test, scif_fence_mark(link->near, SCIF_FENCE_INIT_SELF, NULL),
			-EINVAL);
	KUNIT_EXPECT_EQ(test, scif_fence_wait(link->near, 7), -EINVAL);

	/* Nothing is in flight, so both values are stored when the call returns. */
	KUNIT_EXPECT_EQ(test, scif_fence_signal(link->near, local, 7, remote + 8, 9,
						SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL |
						SCIF_SIGNAL_REMOTE), 0);
	KUNIT_EXPECT_EQ(test, *(u64 *)link->ours, 7);
	KUNIT_EXPECT_EQ(test, *(u64 *)(link->theirs + 8), 9);
	KUNIT_EXPECT_EQ(test, scif_fence_signal(link->near, local + 2, 7, 0, 0,
						SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL),
			-EINVAL);
}

static void remote_pages_are_the_memory_of_the_other_end(struct kunit *test)
{
	struct link *link = test->priv;
	off_t remote = open_window(test, link->far, link->theirs);
	struct scif_range *pages = NULL;
	int i;

	KUNIT_EXPECT_EQ(test, scif_get_pages(link->near, remote, SIZE + PAGE_SIZE, &pages),
			-ENXIO);
	KUNIT_EXPECT_EQ(test, scif_get_pages(link->near, remote, SIZE, NULL), -EINVAL);
	KUNIT_ASSERT_EQ(test, scif_get_pages(link->near, remote, SIZE, &pages), 0);
	KUNIT_EXPECT_EQ(test, pages->nr_pages, PAGES);
	KUNIT_EXPECT_EQ(test, pages->prot_flags, READ_WRITE);
	for (i = 0; i < PAGES; i++) {
		struct page *page = vmalloc_to_page(link->theirs + i * PAGE_SIZE);

		KUNIT_EXPECT_EQ(test, pages->phys_addr[i], page_to_phys(page));
		/* Within one node, the pages are RAM. */
		*(u8 *)pages->va[i] = i + 1;
		KUNIT_EXPECT_EQ(test, link->theirs[i * PAGE_SIZE], i + 1);
	}
	KUNIT_EXPECT_EQ(test, scif_put_pages(pages), 0);
	KUNIT_EXPECT_EQ(test, scif_put_pages(pages), -EINVAL);
	KUNIT_EXPECT_EQ(test, scif_put_pages(NULL), -EINVAL);
}

static void pinned_pages_can_be_registered(struct kunit *test)
{
	struct link *link = test->priv;
	scif_pinned_pages_t pinned = NULL;
	off_t first, second;

	KUNIT_EXPECT_EQ(test, scif_pin_pages(link->ours, SIZE, READ_WRITE, 0, &pinned),
			-EINVAL);
	KUNIT_ASSERT_EQ(test, scif_pin_pages(link->ours, SIZE, READ_WRITE, SCIF_MAP_KERNEL,
					     &pinned), 0);
	first = scif_register_pinned_pages(link->near, pinned, 0, 0);
	second = scif_register_pinned_pages(link->far, pinned, PAGE_SIZE, SCIF_MAP_FIXED);
	KUNIT_EXPECT_GT(test, first, 0);
	KUNIT_EXPECT_EQ(test, second, PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, scif_unpin_pages(pinned), 0);
	KUNIT_EXPECT_EQ(test, scif_unpin_pages(pinned), -EINVAL);
	/* The windows stay after the unpin. */
	link->ours[0] = 5;
	KUNIT_EXPECT_EQ(test, scif_readfrom(link->near, first + PAGE_SIZE, 1, second,
					    SCIF_RMA_SYNC), 0);
	KUNIT_EXPECT_EQ(test, link->ours[PAGE_SIZE], 5);
}

static struct kunit_case scif_kernel_api_cases[] = {
	KUNIT_CASE(registered_client_is_told_of_this_node),
	KUNIT_CASE(invalid_endpoint_is_refused),
	KUNIT_CASE(bytes_sent_by_one_end_are_received_by_the_other),
	KUNIT_CASE(close_is_reported_to_the_other_end),
	KUNIT_CASE(invalid_kernel_memory_registration_is_refused),
	KUNIT_CASE(transfers_copy_between_windows_and_memory),
	KUNIT_CASE(fence_calls_work_and_refuse_invalid_arguments),
	KUNIT_CASE(remote_pages_are_the_memory_of_the_other_end),
	KUNIT_CASE(pinned_pages_can_be_registered),
	{}
};

static struct kunit_suite scif_kernel_api_suite = {
	.name = "scif_kernel_api",
	.init = link_init,
	.exit = link_exit,
	.test_cases = scif_kernel_api_cases,
};

kunit_test_suite(scif_kernel_api_suite);
