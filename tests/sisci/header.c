// SPDX-License-Identifier: GPL-2.0
/* The header alone is enough, for a compiler of 1989. */
#include <sisci_api.h>

int in_c89(void);

static sci_callback_action_t ignore(IN void *arg, IN sci_local_segment_t segment,
				    IN sci_segment_cb_reason_t reason, IN unsigned int node,
				    IN unsigned int adapter, IN sci_error_t error)
{
	(void)arg;
	(void)segment;
	(void)reason;
	(void)node;
	(void)adapter;
	(void)error;
	return SCI_CALLBACK_CANCEL;
}

int in_c89(void)
{
	sci_local_segment_t segment;
	sci_dma_capabilities_t capabilities;
	sci_query_dma_t query;
	dis_dma_vec_t vector[DIS_DMA_MAX_VECLEN];
	sci_device_t lent;
	sci_error_t error;
	sci_desc_t device;

	query.localAdapterNo = 0;
	query.subcommand = SCI_Q_DMA_CAPABILITIES;
	query.data = &capabilities;
	vector[0].size = sizeof(vector);
	SCIInitialize(0, &error);
	SCIOpen(&device, 0, &error);
	SCICreateSegment(device, &segment, 0, vector[0].size, ignore, 0,
			 SCI_FLAG_USE_CALLBACK | SCI_FLAG_PRIVATE, &error);
	if (error == SCI_ERR_OK)
		SCIQuery(SCI_Q_DMA, &query, 0, &error);
	if (error == SCI_ERR_OK)
		SCIRemoveSegment(segment, 0, &error);
	if (error == SCI_ERR_OK) {
		SCIBorrowDevice(device, &lent, 1, SCI_FLAG_SHARED, &error);
		error = error == SCI_ERR_NOT_SUPPORTED ? SCI_ERR_OK : SCI_ERR_SYSTEM;
	}
	SCITerminate();
	return error;
}
