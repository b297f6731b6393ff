/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C helpers for functions that are static inline or macros in the kernel's
 * headers. Most are one call of the kernel and add nothing. The comments in the
 * C files tell what the others add.
 */
#ifndef SCIF_SYS_HELPERS_H
#define SCIF_SYS_HELPERS_H

#include <linux/dma-direction.h>
#include <linux/dmaengine.h>
#include <linux/ntb.h>
#include <linux/scif.h>
#include <linux/mm_types.h>
#include <linux/types.h>

struct dma_iova_state;
struct file;
struct mm_struct;
struct notifier_block;
struct page;
struct user_struct;
struct vm_area_struct;

/* Non-transparent bridges */
void *scif_helper_ntb_context(struct ntb_dev *ntb);
struct device *scif_helper_ntb_device(struct ntb_dev *ntb);
struct device *scif_helper_ntb_dma_device(struct ntb_dev *ntb);
struct device *scif_helper_ntb_hardware(struct ntb_dev *ntb);
int scif_helper_ntb_port_number(struct ntb_dev *ntb);
int scif_helper_ntb_peer_port_count(struct ntb_dev *ntb);
int scif_helper_ntb_peer_port_number(struct ntb_dev *ntb, u32 peer);
u64 scif_helper_ntb_link_is_up(struct ntb_dev *ntb);
void scif_helper_ntb_link(struct ntb_dev *ntb, u32 *generation, u32 *lanes,
			  u32 *payload);
int scif_helper_ntb_link_enable(struct ntb_dev *ntb);
int scif_helper_ntb_link_disable(struct ntb_dev *ntb);
int scif_helper_ntb_mw_count(struct ntb_dev *ntb, u32 peer);
int scif_helper_ntb_mw_get_align(struct ntb_dev *ntb, u32 peer, u32 index,
				 resource_size_t *addr_align,
				 resource_size_t *size_align,
				 resource_size_t *size_max);
bool scif_helper_ntb_translates_inbound(struct ntb_dev *ntb);
bool scif_helper_ntb_has_unsafe_registers(struct ntb_dev *ntb);
int scif_helper_ntb_mw_set_trans(struct ntb_dev *ntb, u32 peer, u32 index,
				 dma_addr_t addr, resource_size_t size);
int scif_helper_ntb_mw_clear_trans(struct ntb_dev *ntb, u32 peer, u32 index);
int scif_helper_ntb_peer_mw_get_addr(struct ntb_dev *ntb, u32 index,
				     phys_addr_t *base, resource_size_t *size);
int scif_helper_ntb_peer_mw_count(struct ntb_dev *ntb);
int scif_helper_ntb_peer_mw_set_trans(struct ntb_dev *ntb, u32 peer, u32 index,
				      u64 addr, resource_size_t size);
int scif_helper_ntb_peer_mw_clear_trans(struct ntb_dev *ntb, u32 peer, u32 index);
int scif_helper_ntb_spad_count(struct ntb_dev *ntb);
u32 scif_helper_ntb_spad_read(struct ntb_dev *ntb, u32 index);
int scif_helper_ntb_peer_spad_write(struct ntb_dev *ntb, u32 peer, u32 index,
				    u32 value);
u64 scif_helper_ntb_db_valid_mask(struct ntb_dev *ntb);
u64 scif_helper_ntb_db_vector_mask(struct ntb_dev *ntb, u32 vector);
u64 scif_helper_ntb_db_read(struct ntb_dev *ntb);
int scif_helper_ntb_db_clear(struct ntb_dev *ntb, u64 bits);
int scif_helper_ntb_db_set_mask(struct ntb_dev *ntb, u64 bits);
int scif_helper_ntb_db_clear_mask(struct ntb_dev *ntb, u64 bits);
int scif_helper_ntb_peer_db_set(struct ntb_dev *ntb, u64 bits);
int scif_helper_ntb_msg_count(struct ntb_dev *ntb);
u64 scif_helper_ntb_msg_inbits(struct ntb_dev *ntb);
u64 scif_helper_ntb_msg_outbits(struct ntb_dev *ntb);
u64 scif_helper_ntb_msg_read_sts(struct ntb_dev *ntb);
int scif_helper_ntb_msg_clear_sts(struct ntb_dev *ntb, u64 bits);
int scif_helper_ntb_msg_set_mask(struct ntb_dev *ntb, u64 bits);
int scif_helper_ntb_msg_clear_mask(struct ntb_dev *ntb, u64 bits);
u32 scif_helper_ntb_msg_read(struct ntb_dev *ntb, u32 index);
int scif_helper_ntb_peer_msg_write(struct ntb_dev *ntb, u32 peer, u32 index,
				   u32 value);

/* DMA engines */
struct dma_chan *scif_helper_dma_request_memcpy(void);
void scif_helper_dma_requested(struct device *dev);
void scif_helper_dma_copy_name(struct dma_chan *chan, char *name, size_t size);
struct device *scif_helper_dma_device(struct dma_chan *chan);
bool scif_helper_dma_mapping_failed(struct device *dev, dma_addr_t address);
bool scif_helper_has_iommu(struct device *dev);
bool scif_helper_dma_reaches(struct device *dev, phys_addr_t phys, size_t len);
bool scif_helper_is_alone(struct device *dev);
bool scif_helper_has_isolated_msi(struct device *dev);
bool scif_helper_bus_is_physical(struct device *dev);
size_t scif_helper_dma_max_segment(struct dma_chan *chan);
bool scif_helper_dma_is_aligned(struct dma_chan *chan, size_t dst, size_t src,
				size_t len);
bool scif_helper_dma_submit(struct dma_chan *chan, dma_addr_t dst,
			    dma_addr_t src, size_t len, bool interrupt,
			    bool fence, dma_async_tx_callback_result done,
			    void *param);
void scif_helper_dma_reap(struct dma_chan *chan);
void scif_helper_dma_issue_pending(struct dma_chan *chan);
int scif_helper_dma_terminate(struct dma_chan *chan);
void scif_helper_dma_synchronize(struct dma_chan *chan);

/* Ranges of I/O addresses */
bool scif_helper_iova_alloc(struct device *dev, struct dma_iova_state *range,
			    size_t size);
void scif_helper_iova_free(struct device *dev, struct dma_iova_state *range);
int scif_helper_iova_link(struct device *dev, struct dma_iova_state *range,
			  phys_addr_t phys, size_t offset, size_t size,
			  enum dma_data_direction dir, unsigned long attrs);
int scif_helper_iova_sync(struct device *dev, struct dma_iova_state *range,
			  size_t offset, size_t size);
void scif_helper_iova_unlink(struct device *dev, struct dma_iova_state *range,
			     size_t offset, size_t size,
			     enum dma_data_direction dir, unsigned long attrs);

/* Suspend and hibernation */
int scif_helper_register_pm_notifier(struct notifier_block *nb);
int scif_helper_unregister_pm_notifier(struct notifier_block *nb);
bool scif_helper_resumed_via_firmware(void);

/* Waiting, and the calling task */
bool scif_helper_need_resched(void);
bool scif_helper_has_waiters(struct wait_queue_head *queue);
bool scif_helper_fatal_signal_pending(void);
bool scif_helper_can_be_killed(void);
void scif_helper_cond_resched(void);
unsigned int scif_helper_current_uid(void);
bool scif_helper_has_no_share(void);
void scif_helper_current_name(char *name, size_t size);
unsigned long scif_helper_current_files(void);
bool scif_helper_is_last_descriptor(struct file *file, unsigned long table);

/* Memory */
phys_addr_t scif_helper_page_to_phys(struct page *page);
size_t scif_helper_pin_folio(struct page *page, size_t wanted);
void scif_helper_unpin(phys_addr_t phys, size_t count, bool dirty);
phys_addr_t scif_helper_virt_to_phys(const void *address);
void *scif_helper_direct_map(phys_addr_t start, size_t len);
phys_addr_t scif_helper_end_of_memory(void);
void *scif_helper_alloc_pages_exact(size_t size, bool account, bool tries_hard);
void *scif_helper_current_memcg(void);
void scif_helper_put_memcg(void *group);
void *scif_helper_set_active_memcg(void *group);
void *scif_helper_alloc_contiguous(struct device *dev, size_t size,
				   size_t align);
void scif_helper_free_contiguous(struct device *dev, void *memory, size_t size);
void scif_helper_copy_to_io(void __iomem *dst, const void *src, size_t len);
void scif_helper_copy_from_io(void *dst, bool dst_io, const void __iomem *src,
			      size_t len);
void *scif_helper_page_address(phys_addr_t phys);
void scif_helper_flush_pages(phys_addr_t phys, size_t len);
int scif_helper_copy_struct_from_user(void *dst, size_t size,
				      const void __user *src, size_t theirs);
int scif_helper_put_user_u32(u32 value, u32 __user *to);
bool scif_helper_copy_user_to_io(void __iomem *to, const void __user *from,
				 size_t len);
struct page *scif_helper_kernel_page(const void *address);
bool scif_helper_pins_without_limit(void);
bool scif_helper_charge_pinned(struct mm_struct *mm, unsigned long pages,
			       struct user_struct **charged);
void scif_helper_uncharge_pinned(struct mm_struct *mm, unsigned long pages,
				 struct user_struct *charged);
unsigned long scif_helper_pinned(struct mm_struct *mm);
unsigned long scif_helper_user_pinned(void);
void scif_helper_vma_set_pfnmap(struct vm_area_struct *vma);
void scif_helper_vma_drop_implied_exec(struct vm_area_struct *vma);
void scif_helper_vma_set_write_combined(struct vm_area_struct *vma);
vm_fault_t scif_helper_insert_cached(struct vm_area_struct *vma,
				     unsigned long address, unsigned long frame);

/* Notification of changes to an address space */
struct mmu_interval_notifier;
bool scif_helper_mmu_interval_read_retry(struct mmu_interval_notifier *subscription,
					 unsigned long sequence);
void scif_helper_mmu_interval_set_seq(struct mmu_interval_notifier *subscription,
				      unsigned long sequence);

/* Memory of devices */
bool scif_helper_is_device_memory(phys_addr_t start, size_t len);
u64 scif_helper_bus_address(phys_addr_t phys);
bool scif_helper_may_access_devices(void);
void __iomem *scif_helper_ioremap_wc(phys_addr_t phys, size_t size);

/* User space */
unsigned long scif_helper_untagged(unsigned long address);
unsigned long scif_helper_compat_ptr(unsigned long argument);

/* The bus of the peers */
int scif_helper_peer_bus_register(void);
void scif_helper_peer_bus_unregister(void);
int scif_helper_peer_device_add(struct scif_peer_dev *spdev, u16 node,
				void (*release)(struct device *dev));
void scif_helper_peer_device_remove(struct scif_peer_dev *spdev);
ssize_t scif_peer_device_show(struct device *dev, const char *attribute,
			      char *buf);
int scif_helper_client_register(struct scif_client *client);
void scif_helper_client_unregister(struct scif_client *client);

/* Clients in the kernel */
bool scif_helper_access_ok(const void *start, size_t len);
bool scif_helper_hold_page(struct page *page);
void scif_helper_disable_bottom_halves(bool disable);
void scif_helper_put_page(struct page *page);
void scif_helper_get_page(struct page *page);
bool scif_helper_is_page_unused(struct page *page);
struct page *scif_helper_linear_page(const void *address);

#endif /* SCIF_SYS_HELPERS_H */
