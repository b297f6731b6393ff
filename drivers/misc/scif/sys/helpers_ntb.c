// SPDX-License-Identifier: GPL-2.0
/*
 * C helpers for non-transparent bridges.
 */

#include <linux/bitfield.h>
#include <linux/device.h>
#include <linux/ntb.h>
#include <linux/pci.h>

#include "helpers.h"

/* Returns the context that ntb_set_ctx() was called with. */
void *scif_helper_ntb_context(struct ntb_dev *ntb)
{
	return ntb->ctx;
}

struct device *scif_helper_ntb_device(struct ntb_dev *ntb)
{
	return &ntb->dev;
}

struct device *scif_helper_ntb_dma_device(struct ntb_dev *ntb)
{
	return ntb_get_dma_dev(ntb);
}

struct device *scif_helper_ntb_hardware(struct ntb_dev *ntb)
{
	return &ntb->pdev->dev;
}

int scif_helper_ntb_port_number(struct ntb_dev *ntb)
{
	return ntb_port_number(ntb);
}

int scif_helper_ntb_peer_port_count(struct ntb_dev *ntb)
{
	return ntb_peer_port_count(ntb);
}

int scif_helper_ntb_peer_port_number(struct ntb_dev *ntb, u32 peer)
{
	return ntb_peer_port_number(ntb, peer);
}

u64 scif_helper_ntb_link_is_up(struct ntb_dev *ntb)
{
	return ntb_link_is_up(ntb, NULL, NULL);
}

/*
 * Tells generation, lanes, and bytes of data in a packet of the link, as far as
 * they are known: 0 if not. Some drivers do not know their link. It is that of
 * the device then.
 */
void scif_helper_ntb_link(struct ntb_dev *ntb, u32 *generation, u32 *lanes,
			  u32 *payload)
{
	enum ntb_speed speed = NTB_SPEED_NONE;
	enum ntb_width width = NTB_WIDTH_NONE;
	u16 status = 0;

	ntb_link_is_up(ntb, &speed, &width);
	if (speed <= NTB_SPEED_NONE || width <= NTB_WIDTH_NONE) {
		pcie_capability_read_word(ntb->pdev, PCI_EXP_LNKSTA, &status);
		if (PCI_POSSIBLE_ERROR(status))
			status = 0;
		speed = status & PCI_EXP_LNKSTA_CLS;
		width = FIELD_GET(PCI_EXP_LNKSTA_NLW, status);
	}
	*generation = speed;
	*lanes = width;
	*payload = pcie_get_mps(ntb->pdev);
}

int scif_helper_ntb_link_enable(struct ntb_dev *ntb)
{
	return ntb_link_enable(ntb, NTB_SPEED_AUTO, NTB_WIDTH_AUTO);
}

int scif_helper_ntb_link_disable(struct ntb_dev *ntb)
{
	return ntb_link_disable(ntb);
}

int scif_helper_ntb_mw_count(struct ntb_dev *ntb, u32 peer)
{
	return ntb_mw_count(ntb, peer);
}

int scif_helper_ntb_mw_get_align(struct ntb_dev *ntb, u32 peer, u32 index,
				 resource_size_t *addr_align,
				 resource_size_t *size_align,
				 resource_size_t *size_max)
{
	return ntb_mw_get_align(ntb, peer, index, addr_align, size_align,
				size_max);
}

bool scif_helper_ntb_translates_inbound(struct ntb_dev *ntb)
{
	return ntb->ops->mw_set_trans;
}

/* A driver that was asked does not warn at the first use. */
bool scif_helper_ntb_has_unsafe_registers(struct ntb_dev *ntb)
{
	bool spads = ntb_spad_is_unsafe(ntb);

	return ntb_db_is_unsafe(ntb) || spads;
}

/* ntb_mw_set_trans() does nothing and returns 0 if the peer has to do it. */
int scif_helper_ntb_mw_set_trans(struct ntb_dev *ntb, u32 peer, u32 index,
				 dma_addr_t addr, resource_size_t size)
{
	return ntb_mw_set_trans(ntb, peer, index, addr, size);
}

int scif_helper_ntb_mw_clear_trans(struct ntb_dev *ntb, u32 peer, u32 index)
{
	return ntb_mw_clear_trans(ntb, peer, index);
}

int scif_helper_ntb_peer_mw_get_addr(struct ntb_dev *ntb, u32 index,
				     phys_addr_t *base, resource_size_t *size)
{
	return ntb_peer_mw_get_addr(ntb, index, base, size);
}

int scif_helper_ntb_peer_mw_count(struct ntb_dev *ntb)
{
	return ntb_peer_mw_count(ntb);
}

/* ntb_peer_mw_set_trans() does nothing and returns 0 if the peer has to do it. */
int scif_helper_ntb_peer_mw_set_trans(struct ntb_dev *ntb, u32 peer, u32 index,
				      u64 addr, resource_size_t size)
{
	return ntb_peer_mw_set_trans(ntb, peer, index, addr, size);
}

int scif_helper_ntb_peer_mw_clear_trans(struct ntb_dev *ntb, u32 peer, u32 index)
{
	return ntb_peer_mw_clear_trans(ntb, peer, index);
}

int scif_helper_ntb_spad_count(struct ntb_dev *ntb)
{
	return ntb_spad_count(ntb);
}

u32 scif_helper_ntb_spad_read(struct ntb_dev *ntb, u32 index)
{
	return ntb_spad_read(ntb, index);
}

int scif_helper_ntb_peer_spad_write(struct ntb_dev *ntb, u32 peer, u32 index,
				    u32 value)
{
	return ntb_peer_spad_write(ntb, peer, index, value);
}

u64 scif_helper_ntb_db_valid_mask(struct ntb_dev *ntb)
{
	return ntb_db_valid_mask(ntb);
}

u64 scif_helper_ntb_db_vector_mask(struct ntb_dev *ntb, u32 vector)
{
	return ntb_db_vector_mask(ntb, vector);
}

u64 scif_helper_ntb_db_read(struct ntb_dev *ntb)
{
	return ntb_db_read(ntb);
}

int scif_helper_ntb_db_clear(struct ntb_dev *ntb, u64 bits)
{
	return ntb_db_clear(ntb, bits);
}

int scif_helper_ntb_db_set_mask(struct ntb_dev *ntb, u64 bits)
{
	return ntb_db_set_mask(ntb, bits);
}

int scif_helper_ntb_db_clear_mask(struct ntb_dev *ntb, u64 bits)
{
	return ntb_db_clear_mask(ntb, bits);
}

int scif_helper_ntb_peer_db_set(struct ntb_dev *ntb, u64 bits)
{
	return ntb_peer_db_set(ntb, bits);
}

int scif_helper_ntb_msg_count(struct ntb_dev *ntb)
{
	return ntb_msg_count(ntb);
}

u64 scif_helper_ntb_msg_inbits(struct ntb_dev *ntb)
{
	return ntb_msg_inbits(ntb);
}

u64 scif_helper_ntb_msg_outbits(struct ntb_dev *ntb)
{
	return ntb_msg_outbits(ntb);
}

u64 scif_helper_ntb_msg_read_sts(struct ntb_dev *ntb)
{
	return ntb_msg_read_sts(ntb);
}

int scif_helper_ntb_msg_clear_sts(struct ntb_dev *ntb, u64 bits)
{
	return ntb_msg_clear_sts(ntb, bits);
}

int scif_helper_ntb_msg_set_mask(struct ntb_dev *ntb, u64 bits)
{
	return ntb_msg_set_mask(ntb, bits);
}

int scif_helper_ntb_msg_clear_mask(struct ntb_dev *ntb, u64 bits)
{
	return ntb_msg_clear_mask(ntb, bits);
}

/*
 * Does not ask for the sender. A read from a device that is gone returns all
 * ones, and ntb_hw_idt would use these bits as an index far behind its table.
 */
u32 scif_helper_ntb_msg_read(struct ntb_dev *ntb, u32 index)
{
	return ntb_msg_read(ntb, NULL, index);
}

int scif_helper_ntb_peer_msg_write(struct ntb_dev *ntb, u32 peer, u32 index,
				   u32 value)
{
	return ntb_peer_msg_write(ntb, peer, index, value);
}
