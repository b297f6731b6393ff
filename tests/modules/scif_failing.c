// SPDX-License-Identifier: GPL-2.0
/*
 * Lets one call of a kernel function by scif.ko fail: the call is not made, and returns a value.
 * This is for functions that fail_function does not know, such as those of the drivers of bridges
 * and engines.
 *
 *	insmod scif_failing.ko symbol=NAME nth=N [value=-5]
 *
 * The parameter "calls" is the number of calls so far.
 */
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/linkage.h>
#include <linux/module.h>
#include <linux/objtool.h>
#include <linux/string.h>

static char *symbol;
module_param(symbol, charp, 0444);
MODULE_PARM_DESC(symbol, "Name of the function");

static int nth;
module_param(nth, int, 0444);
MODULE_PARM_DESC(nth, "Number of the call that fails, from 1 on");

static long value = -EIO;
module_param(value, long, 0444);
MODULE_PARM_DESC(value, "Value that the failing call returns");

static atomic_t calls;
module_param_named(calls, calls.counter, int, 0444);
MODULE_PARM_DESC(calls, "Number of calls so far");

/* Returns to the caller of the function that it replaces. */
asm(".pushsection .text\n"
	".type scif_failing_return, @function\n"
	"scif_failing_return:\n"
	ANNOTATE_NOENDBR "\n"
	ASM_RET
	".size scif_failing_return, .-scif_failing_return\n"
	".popsection\n");

static unsigned long failing_return(void)
{
	unsigned long address;

	asm("lea scif_failing_return(%%rip), %0" : "=r"(address));
	return address;
}

static int failing_before(struct kprobe *probe, struct pt_regs *regs)
{
	char caller[KSYM_SYMBOL_LEN];

	sprint_symbol(caller, regs_get_kernel_stack_nth(regs, 0));
	if (!strstr(caller, "[scif]") || atomic_inc_return(&calls) != nth)
		return 0;
	regs_set_return_value(regs, value);
	instruction_pointer_set(regs, failing_return());
	return 1;
}

/*
 * Keeps the kernel from optimizing the probe into a jump, which would always continue with the
 * function.
 */
static void failing_after(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe failing_probe = {
	.pre_handler = failing_before,
	.post_handler = failing_after,
};

static int __init failing_init(void)
{
	failing_probe.symbol_name = symbol;
	return register_kprobe(&failing_probe);
}
module_init(failing_init);

static void __exit failing_exit(void)
{
	unregister_kprobe(&failing_probe);
}
module_exit(failing_exit);

MODULE_DESCRIPTION("SCIF test: makes one call of a function by scif.ko fail");
MODULE_LICENSE("GPL");
