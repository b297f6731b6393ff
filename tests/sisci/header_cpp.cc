// SPDX-License-Identifier: GPL-2.0
// The header is enough for C++, too, with a lambda as callback.
#include <sisci_api.h>

extern "C" int in_cpp(void);

extern "C" int in_cpp(void)
{
	const sci_cb_remote_segment_t ignore = [](void *, sci_remote_segment_t, sci_segment_cb_reason_t,
						  sci_error_t) { return SCI_CALLBACK_CONTINUE; };
	volatile void *address = nullptr;
	sci_device_t lent = nullptr;
	sci_ioaddr_t bus = 0;
	sci_desc_t device = nullptr;
	sci_error_t error;

	static_assert(sizeof(sci_ioaddr_t) == 8, "addresses have 64 bits");
	static_assert(sizeof(dis_nodeId_list_t) == DIS_MAX_NODEIDS * sizeof(unsigned int), "ids");
	SCIInitialize(0, &error);
	if (!address)
		SCIOpen(&device, SCI_FLAG_THREAD_SAFE, &error);
	SCIConnectSegment(device, nullptr, 0, 0, 0, ignore, nullptr, 0, 0, nullptr);
	SCIMapRemoteSegmentForDevice(nullptr, lent, &bus, SCI_FLAG_SHARED, nullptr);
	SCITerminate();
	return error;
}
