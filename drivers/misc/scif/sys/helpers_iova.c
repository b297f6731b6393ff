// SPDX-License-Identifier: GPL-2.0
/*
 * Ranges of I/O addresses; see helpers.h. All of it is static inline, and says
 * no, in a kernel whose IOMMUs do not serve the DMA API.
 */

#include <linux/dma-mapping.h>

#include "helpers.h"

/* See SHARED and DEVICE_MEMORY in dma_map.rs. */
static unsigned long scif_attributes(bool of_device)
{
	return of_device ? DMA_ATTR_MMIO : DMA_ATTR_REQUIRE_COHERENT;
}

bool scif_helper_iova_alloc(struct device *dev, struct dma_iova_state *range,
			    size_t size)
{
	return dma_iova_try_alloc(dev, range, 0, size);
}

void scif_helper_iova_free(struct device *dev, struct dma_iova_state *range)
{
	dma_iova_free(dev, range);
}

int scif_helper_iova_link(struct device *dev, struct dma_iova_state *range,
			  phys_addr_t phys, size_t offset, size_t size,
			  enum dma_data_direction dir, bool of_device)
{
	return dma_iova_link(dev, range, phys, offset, size, dir,
			     scif_attributes(of_device));
}

int scif_helper_iova_sync(struct device *dev, struct dma_iova_state *range,
			  size_t offset, size_t size)
{
	return dma_iova_sync(dev, range, offset, size);
}

/* Has flushed the IOTLB when it returns. */
void scif_helper_iova_unlink(struct device *dev, struct dma_iova_state *range,
			     size_t offset, size_t size,
			     enum dma_data_direction dir, bool of_device)
{
	dma_iova_unlink(dev, range, offset, size, dir,
			scif_attributes(of_device));
}
