//! Backend: rustc's own NVPTX code generator.
//!
//! Global memory is read and written by plain dereferences: LLVM infers the
//! address space from the kernel's parameters. It cannot infer that of shared
//! memory, since rustc has no pointer type for it, and a generic access costs a
//! fifth of a tiled kernel's speed. So shared memory is a 32-bit address, and
//! `ld.shared` and `st.shared` are written out; ptxas joins neighbouring ones
//! into wider accesses.

use core::arch::asm;
use core::arch::nvptx;

macro_rules! positions {
    ($($name:ident = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        pub fn $name() -> u32 {
            // SAFETY: reads a special register that every thread has.
            (unsafe { nvptx::$intrinsic() }) as u32
        }
    )*};
}

positions! {
    thread_idx_x = _thread_idx_x;
    thread_idx_y = _thread_idx_y;
    thread_idx_z = _thread_idx_z;
    block_idx_x = _block_idx_x;
    block_idx_y = _block_idx_y;
    block_idx_z = _block_idx_z;
    block_dim_x = _block_dim_x;
    block_dim_y = _block_dim_y;
    block_dim_z = _block_dim_z;
    grid_dim_x = _grid_dim_x;
    grid_dim_y = _grid_dim_y;
    grid_dim_z = _grid_dim_z;
}

#[inline(always)]
pub fn sync_threads() {
    // SAFETY: a barrier has no precondition on memory; one that not all threads
    // reach ends in a hang or an error, never in a wrong access.
    unsafe { nvptx::_syncthreads() }
}

/// The address of an array in the shared state space.
pub type SharedAddress = u32;

/// What this backend asks of an element type: its own shared-memory accesses.
pub trait ElementBackend: Sized {
    /// # Safety
    ///
    /// `address` is inside shared memory and aligned for the type.
    unsafe fn shared_load(address: u32) -> Self;
    /// # Safety
    ///
    /// As [`shared_load`](Self::shared_load).
    unsafe fn shared_store(address: u32, value: Self);
    /// # Safety
    ///
    /// As [`shared_load`](Self::shared_load), aligned for four elements.
    unsafe fn shared_load_4(address: u32) -> [Self; 4];
    /// # Safety
    ///
    /// As [`shared_load_4`](Self::shared_load_4).
    unsafe fn shared_store_4(address: u32, values: [Self; 4]);
}

macro_rules! shared_accesses {
    // The options leave out `pure` and `nomem`: the compiler must not move an
    // access across a barrier, nor merge two reads with a barrier between.
    ($($ty:ty, $reg:ident, $suffix:literal, $half:literal;)*) => {$(
        impl ElementBackend for $ty {
            #[inline(always)]
            unsafe fn shared_load(address: u32) -> Self {
                let value;
                // SAFETY: the caller promises a valid shared address.
                unsafe {
                    asm!(
                        concat!("ld.shared.", $suffix, " {value}, [{address}];"),
                        value = out($reg) value,
                        address = in(reg32) address,
                        options(nostack, readonly, preserves_flags),
                    );
                }
                value
            }

            #[inline(always)]
            unsafe fn shared_store(address: u32, value: Self) {
                // SAFETY: the caller promises a valid shared address.
                unsafe {
                    asm!(
                        concat!("st.shared.", $suffix, " [{address}], {value};"),
                        address = in(reg32) address,
                        value = in($reg) value,
                        options(nostack, preserves_flags),
                    );
                }
            }

            #[inline(always)]
            unsafe fn shared_load_4(address: u32) -> [Self; 4] {
                // A vector access moves 16 bytes at most: four elements of 4
                // bytes, or twice two of 8.
                let (a, b, c, d);
                // SAFETY: the caller promises a valid, aligned shared address.
                unsafe {
                    if $half == 0 {
                        asm!(
                            concat!("ld.shared.v4.b32 {{{a}, {b}, {c}, {d}}}, [{address}];"),
                            a = out($reg) a, b = out($reg) b, c = out($reg) c, d = out($reg) d,
                            address = in(reg32) address,
                            options(nostack, readonly, preserves_flags),
                        );
                    } else {
                        asm!(
                            concat!("ld.shared.v2.b64 {{{a}, {b}}}, [{address}];"),
                            concat!("ld.shared.v2.b64 {{{c}, {d}}}, [{address}+16];"),
                            a = out($reg) a, b = out($reg) b, c = out($reg) c, d = out($reg) d,
                            address = in(reg32) address,
                            options(nostack, readonly, preserves_flags),
                        );
                    }
                }
                [a, b, c, d]
            }

            #[inline(always)]
            unsafe fn shared_store_4(address: u32, [a, b, c, d]: [Self; 4]) {
                // SAFETY: the caller promises a valid, aligned shared address.
                unsafe {
                    if $half == 0 {
                        asm!(
                            concat!("st.shared.v4.b32 [{address}], {{{a}, {b}, {c}, {d}}};"),
                            a = in($reg) a, b = in($reg) b, c = in($reg) c, d = in($reg) d,
                            address = in(reg32) address,
                            options(nostack, preserves_flags),
                        );
                    } else {
                        asm!(
                            concat!("st.shared.v2.b64 [{address}], {{{a}, {b}}};"),
                            concat!("st.shared.v2.b64 [{address}+16], {{{c}, {d}}};"),
                            a = in($reg) a, b = in($reg) b, c = in($reg) c, d = in($reg) d,
                            address = in(reg32) address,
                            options(nostack, preserves_flags),
                        );
                    }
                }
            }
        }
    )*};
}

shared_accesses! {
    f32, reg32, "b32", 0;
    u32, reg32, "b32", 0;
    f64, reg64, "b64", 1;
}

/// # Safety
///
/// As [`Shared::load`](super::Shared::load).
#[inline(always)]
pub unsafe fn shared_load<T: ElementBackend>(base: SharedAddress, i: u32) -> T {
    // SAFETY: the caller promises that element i is inside the array.
    unsafe { T::shared_load(base + i * size_of::<T>() as u32) }
}

/// # Safety
///
/// As [`Shared::store`](super::Shared::store).
#[inline(always)]
pub unsafe fn shared_store<T: ElementBackend>(base: SharedAddress, i: u32, value: T) {
    // SAFETY: the caller promises that element i is inside the array.
    unsafe { T::shared_store(base + i * size_of::<T>() as u32, value) }
}

/// # Safety
///
/// As [`Shared::load_4`](super::Shared::load_4).
#[inline(always)]
pub unsafe fn shared_load_4<T: ElementBackend>(base: SharedAddress, i: u32) -> [T; 4] {
    // SAFETY: the caller promises that the elements are inside and aligned.
    unsafe { T::shared_load_4(base + i * size_of::<T>() as u32) }
}

/// # Safety
///
/// As [`Shared::store_4`](super::Shared::store_4).
#[inline(always)]
pub unsafe fn shared_store_4<T: ElementBackend>(base: SharedAddress, i: u32, values: [T; 4]) {
    // SAFETY: the caller promises that the elements are inside and aligned.
    unsafe { T::shared_store_4(base + i * size_of::<T>() as u32, values) }
}

/// # Safety
///
/// `pointer` is good for a read.
#[inline(always)]
pub unsafe fn global_load<T: Copy>(pointer: *const T) -> T {
    // SAFETY: the caller promises a readable element.
    unsafe { *pointer }
}

/// Four elements with the alignment that one wide access needs.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Four<T>([T; 4]);

/// # Safety
///
/// `pointer` is good for a read of four elements and aligned for them.
#[inline(always)]
pub unsafe fn global_load_4<T: Copy>(pointer: *const T) -> [T; 4] {
    // SAFETY: the caller promises four readable elements, aligned as `Four` is.
    unsafe { (*pointer.cast::<Four<T>>()).0 }
}

/// # Safety
///
/// `pointer` is good for a write.
#[inline(always)]
pub unsafe fn global_store<T>(pointer: *mut T, value: T) {
    // SAFETY: the caller promises a writable element.
    unsafe { *pointer = value }
}

/// # Safety
///
/// `pointer` is good for a write of four elements and aligned for them.
#[inline(always)]
pub unsafe fn global_store_4<T>(pointer: *mut T, values: [T; 4]) {
    // SAFETY: the caller promises four writable elements, aligned as `Four` is.
    unsafe { *pointer.cast::<Four<T>>() = Four(values) }
}

/// What this backend asks of a number.
pub trait FloatBackend: Sized {
    fn fma(a: Self, b: Self, c: Self) -> Self;
    fn add(a: Self, b: Self) -> Self;
    fn mul(a: Self, b: Self) -> Self;
}

impl FloatBackend for f32 {
    #[inline(always)]
    fn fma(a: Self, b: Self, c: Self) -> Self {
        core::intrinsics::fmaf32(a, b, c)
    }
    #[inline(always)]
    fn add(a: Self, b: Self) -> Self {
        a + b
    }
    #[inline(always)]
    fn mul(a: Self, b: Self) -> Self {
        a * b
    }
}

impl FloatBackend for f64 {
    #[inline(always)]
    fn fma(a: Self, b: Self, c: Self) -> Self {
        core::intrinsics::fmaf64(a, b, c)
    }
    #[inline(always)]
    fn add(a: Self, b: Self) -> Self {
        a + b
    }
    #[inline(always)]
    fn mul(a: Self, b: Self) -> Self {
        a * b
    }
}

#[inline(always)]
pub fn fma<T: FloatBackend>(a: T, b: T, c: T) -> T {
    T::fma(a, b, c)
}

#[inline(always)]
pub fn add<T: FloatBackend>(a: T, b: T) -> T {
    T::add(a, b)
}

#[inline(always)]
pub fn mul<T: FloatBackend>(a: T, b: T) -> T {
    T::mul(a, b)
}

/// Declares a shared array in the kernel that expands it and gives its
/// [`Shared`](super::Shared).
///
/// The array's name is made of the kernel's and its own, so two arrays never
/// share one; without `pure`, two arrays of one size never share an address.
#[doc(hidden)]
#[macro_export]
macro_rules! declare_shared {
    ($kernel:ident, $array:ident, $element:ty, $len:expr) => {{
        let address: u32;
        // SAFETY: declares an array that belongs to this kernel alone, 16-byte
        // aligned, and takes its address.
        unsafe {
            core::arch::asm!(
                concat!(".shared .align 16 .b8 ", stringify!($kernel), "_", stringify!($array), "[{bytes}];"),
                concat!("mov.u32 {address}, ", stringify!($kernel), "_", stringify!($array), ";"),
                bytes = const { $len * size_of::<$element>() },
                address = out(reg32) address,
                options(nomem, nostack, preserves_flags),
            );
            $crate::gpu::Shared::<$element, { $len }>::from_address(address)
        }
    }};
}
pub use crate::declare_shared;

/// Arrays of the dynamic shared memory lie behind this symbol, at the offsets
/// that their kernel gives them. Its address is a multiple of 128, as the copy
/// engine wants it.
mod dynamic_shared {
    core::arch::global_asm!(".extern .shared .align 128 .b8 kernels_dynamic_shared[];");
}

/// Gives the [`Shared`](super::Shared) of an array in the dynamic shared memory.
#[doc(hidden)]
#[macro_export]
macro_rules! declare_dynamic_shared {
    ($array:ident, $element:ty, $len:expr, $offset:expr) => {{
        let address: u32;
        // SAFETY: takes the address of memory that the launch gives the block,
        // as much as the kernel's layout says.
        unsafe {
            core::arch::asm!(
                "mov.u32 {address}, kernels_dynamic_shared+{offset};",
                offset = const { $offset },
                address = out(reg32) address,
                options(nomem, nostack, preserves_flags),
            );
            $crate::gpu::Shared::<$element, { $len }>::from_address(address)
        }
    }};
}
pub use crate::declare_dynamic_shared;

/// The address of element `i`.
#[inline(always)]
pub fn shared_element<T>(base: SharedAddress, i: u32) -> SharedAddress {
    base + i * size_of::<T>() as u32
}

/// # Safety
///
/// As [`async_copy`](super::async_copy)'s functions, for 4, 8 or 16 bytes.
#[inline(always)]
pub unsafe fn copy_async(to: SharedAddress, from: u64, bytes: u32, valid: bool) {
    // A predicate says what is not read. A source size of zero would do too,
    // but costs ptxas two instructions more.
    let skip = u32::from(!valid);
    macro_rules! copy {
        ($cache:literal, $bytes:literal) => {
            asm!(
                "{{",
                ".reg .pred skip;",
                "setp.ne.u32 skip, {skip}, 0;",
                concat!("cp.async.", $cache, ".shared.global [{to}], [{from}], ", $bytes, ", skip;"),
                "}}",
                skip = in(reg32) skip, to = in(reg32) to, from = in(reg64) from,
                options(nostack, preserves_flags),
            )
        };
    }
    // The smaller sizes are cached in L1 on their way, and no other way exists.
    // SAFETY: the caller promises both places.
    unsafe {
        match bytes {
            4 => copy!("ca", "4"),
            8 => copy!("ca", "8"),
            _ => copy!("cg", "16"),
        }
    }
}

#[inline(always)]
pub fn commit_copies() {
    // SAFETY: closes a group; no precondition.
    unsafe { asm!("cp.async.commit_group;", options(nostack, preserves_flags)) }
}

#[inline(always)]
pub fn wait_for_copies<const NEWEST: u32>() {
    // SAFETY: waits; no precondition.
    unsafe {
        asm!("cp.async.wait_group {newest};", newest = const NEWEST, options(nostack, preserves_flags));
    }
}

/// # Safety
///
/// As [`BarrierAt::init`](super::BarrierAt::init).
#[inline(always)]
pub unsafe fn init_barrier(barrier: SharedAddress, arrivals: u32) {
    // SAFETY: the caller promises a place for a barrier.
    unsafe {
        asm!(
            "mbarrier.init.shared.b64 [{barrier}], {arrivals};",
            barrier = in(reg32) barrier, arrivals = in(reg32) arrivals,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// As [`BarrierAt::arrive`](super::BarrierAt::arrive).
#[inline(always)]
pub unsafe fn arrive(barrier: SharedAddress) {
    // SAFETY: the caller promises a barrier.
    unsafe {
        asm!(
            "mbarrier.arrive.shared.b64 _, [{barrier}];",
            barrier = in(reg32) barrier,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// As [`BarrierAt::arrive_expecting`](super::BarrierAt::arrive_expecting).
#[inline(always)]
pub unsafe fn arrive_expecting(barrier: SharedAddress, bytes: u32) {
    // SAFETY: the caller promises a barrier.
    unsafe {
        asm!(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], {bytes};",
            barrier = in(reg32) barrier, bytes = in(reg32) bytes,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// As [`BarrierAt::arrive_after_copies`](super::BarrierAt::arrive_after_copies).
#[inline(always)]
pub unsafe fn arrive_after_copies(barrier: SharedAddress) {
    // `noinc`: the arrival is one of those that the barrier was made for.
    // SAFETY: the caller promises a barrier.
    unsafe {
        asm!(
            "cp.async.mbarrier.arrive.noinc.shared.b64 [{barrier}];",
            barrier = in(reg32) barrier,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// As [`BarrierAt::wait`](super::BarrierAt::wait).
#[inline(always)]
#[allow(
    named_asm_labels,
    reason = "PTX scopes labels by braces, which the text has"
)]
pub unsafe fn wait_for_phase(barrier: SharedAddress, parity: u32) {
    // SAFETY: the caller promises a barrier.
    unsafe {
        // From sm_90 on the hardware suspends a waiting thread for a while.
        #[cfg(target_feature = "sm_90")]
        asm!(
            "{{",
            ".reg .pred done;",
            "again:",
            "mbarrier.try_wait.parity.shared.b64 done, [{barrier}], {parity};",
            "@!done bra again;",
            "}}",
            barrier = in(reg32) barrier, parity = in(reg32) parity,
            options(nostack, preserves_flags),
        );
        #[cfg(not(target_feature = "sm_90"))]
        asm!(
            "{{",
            ".reg .pred done;",
            "again:",
            "mbarrier.test_wait.parity.shared.b64 done, [{barrier}], {parity};",
            "@!done bra again;",
            "}}",
            barrier = in(reg32) barrier, parity = in(reg32) parity,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// As [`BarrierAt::has_ended`](super::BarrierAt::has_ended).
#[inline(always)]
pub unsafe fn phase_has_ended(barrier: SharedAddress, parity: u32) -> bool {
    let ended: u32;
    // SAFETY: the caller promises a barrier.
    unsafe {
        asm!(
            "{{",
            ".reg .pred ended;",
            "mbarrier.test_wait.parity.shared.b64 ended, [{barrier}], {parity};",
            "selp.u32 {ended}, 1, 0, ended;",
            "}}",
            barrier = in(reg32) barrier, parity = in(reg32) parity, ended = out(reg32) ended,
            options(nostack, preserves_flags),
        );
    }
    ended != 0
}

#[inline(always)]
pub fn publish_barriers() {
    // The copy engine works through a proxy of its own, which sees the barriers
    // only after these. Older targets have no such engine.
    #[cfg(target_feature = "sm_90")]
    // SAFETY: fences have no precondition.
    unsafe {
        asm!(
            "fence.mbarrier_init.release.cluster;",
            "fence.proxy.async.shared::cta;",
            options(nostack, preserves_flags),
        );
    }
}

#[inline(always)]
pub fn sync_warp() {
    // SAFETY: a barrier has no precondition on memory.
    unsafe {
        asm!(
            "bar.warp.sync 0xffffffff;",
            options(nostack, preserves_flags)
        )
    }
}

/// A tensor map as a kernel takes it: by value. The host gives 64 as its
/// alignment in the PTX, which rustc can't.
#[doc(hidden)]
#[repr(C, align(16))]
pub struct TensorMapParameter([u64; 16]);

/// A matrix that the copy engine cuts boxes out of, in the kernel's parameters.
#[derive(Clone, Copy)]
pub struct TensorMap(u64);

impl TensorMap {
    /// # Safety
    ///
    /// `address` is the generic address of a tensor map.
    #[doc(hidden)]
    #[inline(always)]
    pub unsafe fn from_address(address: u64) -> Self {
        Self(address)
    }
}

/// Gives the [`TensorMap`] of a kernel's parameter.
///
/// Taking the parameter's address in Rust would give that of a copy in local
/// memory, which the engine can't read.
#[doc(hidden)]
#[macro_export]
macro_rules! tensor_map_parameter {
    ($kernel:ident, $map:ident, $index:expr) => {{
        let address: u64;
        // SAFETY: takes the address of the kernel's own parameter.
        unsafe {
            core::arch::asm!(
                "{{",
                ".reg .u64 parameter;",
                concat!("mov.b64 parameter, ", stringify!($kernel), "_param_{index};"),
                "cvta.param.u64 {address}, parameter;",
                "}}",
                index = const { $index },
                address = out(reg64) address,
                options(pure, nomem, nostack, preserves_flags),
            );
            $crate::gpu::TensorMap::from_address(address)
        }
    }};
}
pub use crate::tensor_map_parameter;

/// # Safety
///
/// As [`TensorMap::copy_box`](super::TensorMap::copy_box).
#[inline(always)]
pub unsafe fn copy_box(
    to: SharedAddress,
    map: TensorMap,
    row: u32,
    column: u32,
    barrier: SharedAddress,
) {
    // SAFETY: the caller promises all places.
    unsafe {
        asm!(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes \
             [{to}], [{map}, {{{column}, {row}}}], [{barrier}];",
            to = in(reg32) to, map = in(reg64) map.0, row = in(reg32) row,
            column = in(reg32) column, barrier = in(reg32) barrier,
            options(nostack, preserves_flags),
        );
    }
}

#[inline(always)]
pub fn uniform(value: u32) -> u32 {
    let same: u32;
    // SAFETY: all threads of the warp come here.
    unsafe {
        asm!(
            "shfl.sync.idx.b32 {same}, {value}, 0, 31, 0xffffffff;",
            same = out(reg32) same, value = in(reg32) value,
            options(nostack, preserves_flags),
        );
    }
    same
}

#[inline(always)]
pub fn elect() -> bool {
    let chosen: u32;
    // SAFETY: all threads of the warp come here.
    unsafe {
        asm!(
            "{{",
            ".reg .pred chosen;",
            "elect.sync _|chosen, 0xffffffff;",
            "selp.u32 {chosen}, 1, 0, chosen;",
            "}}",
            chosen = out(reg32) chosen,
            options(nostack, preserves_flags),
        );
    }
    chosen != 0
}

#[inline(always)]
pub fn prefetch_tensor_map(map: TensorMap) {
    // SAFETY: the address is that of a tensor map, as `from_address` was promised.
    unsafe {
        asm!(
            "prefetch.tensormap [{map}];",
            map = in(reg64) map.0,
            options(nostack, preserves_flags),
        );
    }
}

#[inline(always)]
pub fn opaque(mut value: u32) -> u32 {
    // SAFETY: the text is a comment.
    unsafe {
        asm!("// {value}", value = inout(reg32) value, options(nostack, preserves_flags));
    }
    value
}

/// What `start(…)` of [`kernel!`](crate::kernel) may name.
pub mod start {
    /// Lets the next launch begin, then waits for the one before.
    #[inline(always)]
    pub fn early() {
        itself();
        super::wait_for_launch_before();
    }

    /// Lets the next launch begin. Older targets start no launch early.
    #[inline(always)]
    pub fn itself() {
        #[cfg(target_feature = "sm_90")]
        // SAFETY: has no precondition: what follows waits for all of this launch.
        unsafe {
            core::arch::asm!(
                "griddepcontrol.launch_dependents;",
                options(nostack, preserves_flags),
            );
        }
    }
}

#[inline(always)]
pub fn wait_for_launch_before() {
    #[cfg(target_feature = "sm_90")]
    // SAFETY: has no precondition. It is taken to touch memory, so that no access
    // moves up.
    unsafe {
        asm!("griddepcontrol.wait;", options(nostack, preserves_flags));
    }
}

/// An address in the shared memory of any block of the cluster.
pub type ClusterAddress = u32;

macro_rules! cluster_registers {
    ($($name:ident = $register:literal;)*) => {$(
        #[inline(always)]
        pub fn $name() -> u32 {
            let value;
            // SAFETY: reads a register that is constant for the block.
            unsafe {
                asm!(
                    concat!("mov.u32 {value}, %", $register, ";"),
                    value = out(reg32) value,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
            value
        }
    )*};
}

cluster_registers! {
    cluster_rank = "cluster_ctarank";
    cluster_size = "cluster_nctarank";
}

#[inline(always)]
pub fn arrive_at_cluster() {
    // SAFETY: a barrier has no precondition on memory.
    unsafe {
        asm!(
            "barrier.cluster.arrive.release.aligned;",
            options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub fn arrive_at_cluster_relaxed() {
    // SAFETY: as above.
    unsafe {
        asm!(
            "barrier.cluster.arrive.relaxed.aligned;",
            options(nostack, preserves_flags)
        );
    }
}

#[inline(always)]
pub fn wait_for_cluster() {
    // SAFETY: as above.
    unsafe {
        asm!(
            "barrier.cluster.wait.acquire.aligned;",
            options(nostack, preserves_flags)
        );
    }
}

/// The address of the same place in the shared memory of block `rank`.
#[inline(always)]
pub fn address_in_cluster(address: SharedAddress, rank: u32) -> ClusterAddress {
    let there;
    // SAFETY: computes an address.
    unsafe {
        asm!(
            "mapa.shared::cluster.u32 {there}, {address}, {rank};",
            there = out(reg32) there, address = in(reg32) address, rank = in(reg32) rank,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    there
}

/// The address of element `i` of an array of `f32`.
#[inline(always)]
pub fn cluster_element(base: ClusterAddress, i: u32) -> ClusterAddress {
    base + i * size_of::<f32>() as u32
}

/// # Safety
///
/// As [`RemoteShared::load_4`](super::cluster::RemoteShared::load_4).
#[inline(always)]
pub unsafe fn cluster_load_4(address: ClusterAddress) -> [f32; 4] {
    let (a, b, c, d);
    // SAFETY: the caller promises a place in the cluster's shared memory that
    // holds four elements.
    unsafe {
        asm!(
            "ld.shared::cluster.v4.b32 {{{a}, {b}, {c}, {d}}}, [{address}];",
            a = out(reg32) a, b = out(reg32) b, c = out(reg32) c, d = out(reg32) d,
            address = in(reg32) address,
            options(nostack, readonly, preserves_flags),
        );
    }
    [a, b, c, d]
}

/// # Safety
///
/// As [`RemoteShared::store_4`](super::cluster::RemoteShared::store_4).
#[inline(always)]
pub unsafe fn cluster_store_4(address: ClusterAddress, [a, b, c, d]: [f32; 4]) {
    // SAFETY: the caller promises a place in the cluster's shared memory that
    // holds four elements.
    unsafe {
        asm!(
            "st.shared::cluster.v4.b32 [{address}], {{{a}, {b}, {c}, {d}}};",
            address = in(reg32) address,
            a = in(reg32) a, b = in(reg32) b, c = in(reg32) c, d = in(reg32) d,
            options(nostack, preserves_flags),
        );
    }
}
