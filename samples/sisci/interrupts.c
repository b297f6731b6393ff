// SPDX-License-Identifier: GPL-2.0
/*
 * Interrupts notify a node, which need not poll.
 *
 *	interrupts server			on one node, for one client
 *	interrupts client NODE COUNT TEXT	on another, or the same
 *
 * The client triggers an interrupt COUNT times, which the server counts while it sleeps in between.
 * The client also sends TEXT by an interrupt with data, which the server receives by a callback.
 * Both interrupts have fixed numbers, so that the client knows them.
 */
#include <semaphore.h>
#include <string.h>

#include "sample.h"

#define INTERRUPT	5200
#define ENOUGH_TEXT	256

struct message {
	sem_t has_come;
	unsigned int count;
	char text[ENOUGH_TEXT];
};

/* Runs in a thread of the library. The data is valid until this function returns. */
static sci_callback_action_t take(void *arg, sci_local_data_interrupt_t interrupt, void *data,
				  unsigned int length, sci_error_t status)
{
	struct message *message = arg;

	(void)interrupt;
	must(status, "the interrupt with data has ended");
	if (length <= sizeof(message->count)) {
		fprintf(stderr, "%s: %u bytes have come, which is no message of this program\n",
			sample, length);
		return SCI_CALLBACK_CONTINUE;
	}
	memcpy(&message->count, data, sizeof(message->count));
	length -= sizeof(message->count);
	if (length >= sizeof(message->text))
		length = sizeof(message->text) - 1;
	memcpy(message->text, (char *)data + sizeof(message->count), length);
	message->text[length] = '\0';
	sem_post(&message->has_come);
	return SCI_CALLBACK_CANCEL;
}

static void serve(void)
{
	unsigned int interrupt_no = INTERRUPT, data_no = INTERRUPT, count = 0;
	sci_local_data_interrupt_t data_interrupt;
	sci_local_interrupt_t interrupt;
	sci_desc_t device = open_device();
	struct message message;
	sci_error_t error;

	sem_init(&message.has_come, 0, 0);
	/*
	 * Without the flag for counting, interrupts that come while no thread waits would count as
	 * one.
	 */
	SCICreateInterrupt(device, &interrupt, ADAPTER, &interrupt_no, NULL, NULL,
			   SCI_FLAG_FIXED_INTNO | SCI_FLAG_COUNTING_INT, &error);
	must(error, "cannot create interrupt %u", interrupt_no);
	SCICreateDataInterrupt(device, &data_interrupt, ADAPTER, &data_no, take, &message,
			       SCI_FLAG_FIXED_INTNO | SCI_FLAG_USE_CALLBACK, &error);
	must(error, "cannot create data interrupt %u", data_no);
	printf("node %u waits for interrupts\n", own_node());
	fflush(stdout);

	/* The expected number of interrupts comes after them, in the interrupt with data. */
	SCIWaitForInterrupt(interrupt, SCI_INFINITE_TIMEOUT, NO_FLAGS, &error);
	must(error, "cannot wait for interrupt %u", interrupt_no);
	sem_wait(&message.has_come);
	for (count = 1; count < message.count; count++) {
		SCIWaitForInterrupt(interrupt, PATIENCE_MS, NO_FLAGS, &error);
		must(error, "of %u interrupts, %u have come; the next", message.count, count);
	}
	printf("%u interrupts, and the text: %s\n", count, message.text);

	SCIRemoveDataInterrupt(data_interrupt, NO_FLAGS, &error);
	must(error, "cannot remove data interrupt %u", data_no);
	SCIRemoveInterrupt(interrupt, NO_FLAGS, &error);
	must(error, "cannot remove interrupt %u", interrupt_no);
	SCIClose(device, NO_FLAGS, &error);
	must(error, "cannot close the virtual device");
	SCITerminate();
}

/* Connects to both interrupts, once they exist. */
static void connect_both(sci_desc_t device, unsigned int node, sci_remote_interrupt_t *interrupt,
			 sci_remote_data_interrupt_t *data_interrupt)
{
	unsigned int waited = 0;
	sci_error_t error;

	/* The server makes the interrupt with data last. */
	for (;; waited += 50) {
		SCIConnectDataInterrupt(device, data_interrupt, node, ADAPTER, INTERRUPT,
					SCI_INFINITE_TIMEOUT, NO_FLAGS, &error);
		if (error != SCI_ERR_NO_SUCH_INTNO || waited >= PATIENCE_MS)
			break;
		usleep(50000);
	}
	must(error, "cannot connect to data interrupt %u of node %u", INTERRUPT, node);
	SCIConnectInterrupt(device, interrupt, node, ADAPTER, INTERRUPT, SCI_INFINITE_TIMEOUT,
			    NO_FLAGS, &error);
	must(error, "cannot connect to interrupt %u of node %u", INTERRUPT, node);
}

static void tell(unsigned int node, unsigned int count, const char *text)
{
	sci_remote_data_interrupt_t data_interrupt;
	char data[sizeof(count) + ENOUGH_TEXT];
	sci_remote_interrupt_t interrupt;
	sci_desc_t device = open_device();
	size_t length = strlen(text);
	sci_error_t error;
	unsigned int i;

	if (!length || length >= ENOUGH_TEXT) {
		fprintf(stderr, "%s: the text has %zu bytes; 1 to %d are allowed\n", sample,
			length, ENOUGH_TEXT - 1);
		exit(EXIT_USAGE);
	}
	memcpy(data, &count, sizeof(count));
	memcpy(data + sizeof(count), text, length);
	connect_both(device, node, &interrupt, &data_interrupt);

	for (i = 0; i < count; i++) {
		SCITriggerInterrupt(interrupt, NO_FLAGS, &error);
		must(error, "cannot trigger interrupt %u of node %u", INTERRUPT, node);
	}
	SCITriggerDataInterrupt(data_interrupt, data, sizeof(count) + length, NO_FLAGS, &error);
	must(error, "cannot send the text to node %u", node);
	printf("node %u was told %u times\n", node, count);

	SCIDisconnectInterrupt(interrupt, NO_FLAGS, &error);
	must(error, "cannot disconnect from interrupt %u", INTERRUPT);
	SCIDisconnectDataInterrupt(data_interrupt, NO_FLAGS, &error);
	must(error, "cannot disconnect from data interrupt %u", INTERRUPT);
	SCIClose(device, NO_FLAGS, &error);
	must(error, "cannot close the virtual device");
	SCITerminate();
}

static const char usage[] =
	"usage: interrupts server | interrupts client NODE COUNT TEXT\n"
	"\n"
	"The client triggers an interrupt COUNT times, and sends TEXT. NODE is the server's\n"
	"id, which sisci-info shows.\n"
	"\n"
	EXIT_CODES;

int main(int argc, char **argv)
{
	sample = "interrupts";
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		fputs(usage, stdout);
	} else if (argc == 2 && !strcmp(argv[1], "server")) {
		serve();
	} else if (argc == 5 && !strcmp(argv[1], "client")) {
		tell(number(argv[2], "a node's id"), number(argv[3], "a count"), argv[4]);
	} else {
		fputs(usage, stderr);
		return EXIT_USAGE;
	}
	return 0;
}
