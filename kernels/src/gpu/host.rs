//! Backend: the kernel runs on the CPU.
//!
//! Nothing here knows how to simulate a GPU. Every call of the device API goes
//! to the [`Machine`] that is installed on this OS thread, with the place in
//! the kernel's source it came from. Global pointers are addresses that the
//! machine hands out and checks; they are never dereferenced.

use core::cell::Cell;
use core::panic::Location;
use core::ptr::NonNull;
use std::thread_local;

/// The place in a kernel's source that made a call.
pub type Site = &'static Location<'static>;

/// A state space of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Memory that all threads of the grid see. Addresses are the machine's.
    Global,
    /// Memory that the threads of one block see. Addresses are the machine's.
    Shared,
}

/// What one thread asks of memory in one access.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Where.
    pub space: Space,
    /// The first byte, in the space's addresses.
    pub address: u64,
    /// Bytes of one element. A wide access moves several.
    pub element_bytes: u32,
    /// The call in the kernel.
    pub site: Site,
}

/// A floating-point operation that [`math`](super::math) offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Fused multiply-add on float32: two FLOPs.
    FmaF32,
    /// Addition on float32: one FLOP.
    AddF32,
    /// Fused multiply-add on float64: two FLOPs.
    FmaF64,
    /// Addition on float64: one FLOP.
    AddF64,
    /// Multiplication on float32: one FLOP.
    MulF32,
    /// Multiplication on float64: one FLOP.
    MulF64,
}

/// Where the running thread stands. Each triple is x, y, z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Index of the thread in its block.
    pub thread_idx: [u32; 3],
    /// Index of the block in the grid.
    pub block_idx: [u32; 3],
    /// Threads in a block.
    pub block_dim: [u32; 3],
    /// Blocks in the grid.
    pub grid_dim: [u32; 3],
}

/// What runs kernels on the CPU: the target of every device API call.
///
/// A call that finds a fault may unwind instead of returning; the kernel's
/// frames hold nothing that needs it otherwise.
pub trait Machine {
    /// Where the running thread stands.
    fn position(&self) -> Position;
    /// Reads `value.len()` bytes, all in one access.
    fn load(&self, access: Access, value: &mut [u8]);
    /// Writes `value`, all in one access.
    fn store(&self, access: Access, value: &[u8]);
    /// Waits for the block's other threads.
    fn sync_threads(&self, site: Site);
    /// Waits until `ready` says so; see [`wait_until`].
    fn wait_until(&self, ready: &mut dyn FnMut() -> bool, site: Site);
    /// The address in shared memory of the array `name` of the running block,
    /// `bytes` long and aligned to 16. The first thread to ask declares it.
    ///
    /// Arrays lie at least 2^40 bytes apart, so that an index past the end of
    /// one never names another.
    fn declare_shared(&self, name: &'static str, bytes: u32, site: Site) -> u64;
    /// Counts an arithmetic operation.
    fn count(&self, operation: Operation, site: Site);
    /// The same machine, where it also knows asynchronous copies.
    fn asynchronous(&self) -> Option<&dyn Asynchronous> {
        None
    }
    /// The same machine, where it also knows clusters.
    fn clusters(&self) -> Option<&dyn Clusters> {
        None
    }
}

thread_local! {
    static MACHINE: Cell<Option<NonNull<dyn Machine>>> = const { Cell::new(None) };
}

/// Runs `body` with `machine` as the target of this OS thread's device API
/// calls, and restores the earlier target afterwards, also on unwinding.
pub fn with_machine<R>(machine: &(dyn Machine + 'static), body: impl FnOnce() -> R) -> R {
    struct Restore(Option<NonNull<dyn Machine>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            MACHINE.set(self.0);
        }
    }
    let _restore = Restore(MACHINE.replace(Some(NonNull::from(machine))));
    body()
}

/// The installed machine.
///
/// # Panics
///
/// Where there is none: a kernel was called as an ordinary function.
#[inline]
#[track_caller]
fn machine<R>(call: impl FnOnce(&dyn Machine) -> R) -> R {
    let Some(machine) = MACHINE.get() else {
        panic!("a kernel runs on a GPU or under the simulator, not as a function on the CPU");
    };
    // SAFETY: `with_machine` holds the borrow while the pointer is installed.
    call(unsafe { machine.as_ref() })
}

macro_rules! positions {
    ($($name:ident = $field:ident[$axis:literal];)*) => {$(
        pub(super) fn $name() -> u32 {
            machine(|machine| machine.position().$field[$axis])
        }
    )*};
}

positions! {
    thread_idx_x = thread_idx[0];
    thread_idx_y = thread_idx[1];
    thread_idx_z = thread_idx[2];
    block_idx_x = block_idx[0];
    block_idx_y = block_idx[1];
    block_idx_z = block_idx[2];
    block_dim_x = block_dim[0];
    block_dim_y = block_dim[1];
    block_dim_z = block_dim[2];
    grid_dim_x = grid_dim[0];
    grid_dim_y = grid_dim[1];
    grid_dim_z = grid_dim[2];
}

#[track_caller]
pub(super) fn sync_threads() {
    let site = Location::caller();
    machine(|machine| machine.sync_threads(site));
}

/// Waits until `ready` holds, while the block's other threads run.
///
/// For the waits of the device API that are not barriers of the whole block:
/// on a barrier in shared memory, or for an asynchronous copy. `ready` may be
/// called any number of times; it looks at what the machine or other threads
/// did, and changes nothing that a kernel can see. A wait that no thread of the
/// block can end is the machine's to report.
#[track_caller]
pub fn wait_until(mut ready: impl FnMut() -> bool) {
    let site = Location::caller();
    machine(|machine| machine.wait_until(&mut ready, site));
}

/// The address of an array in the block's shared memory, in the machine's
/// terms.
pub(super) type SharedAddress = u64;

/// What this backend asks of an element type: nothing beyond being plain data.
pub trait ElementBackend {}
impl ElementBackend for f32 {}
impl ElementBackend for f64 {}
impl ElementBackend for u32 {}

#[track_caller]
fn load<T: super::Element, const N: usize>(space: Space, address: u64) -> [T; N] {
    load_by(space, address, |access, bytes| {
        machine(|machine| machine.load(access, bytes));
    })
}

/// What `read` puts into the elements' bytes.
#[track_caller]
fn load_by<T: super::Element, const N: usize>(
    space: Space,
    address: u64,
    read: impl FnOnce(Access, &mut [u8]),
) -> [T; N] {
    let site = Location::caller();
    let mut values = [T::default(); N];
    // SAFETY: an element is plain data without padding, so its bytes may be
    // viewed and overwritten with any others.
    let bytes = unsafe {
        core::slice::from_raw_parts_mut(values.as_mut_ptr().cast::<u8>(), size_of::<[T; N]>())
    };
    let access = Access {
        space,
        address,
        element_bytes: size_of::<T>() as u32,
        site,
    };
    read(access, bytes);
    values
}

#[track_caller]
fn store<T: super::Element, const N: usize>(space: Space, address: u64, values: [T; N]) {
    store_by(space, address, values, |access, bytes| {
        machine(|machine| machine.store(access, bytes));
    });
}

/// Has `write` take the elements' bytes.
#[track_caller]
fn store_by<T: super::Element, const N: usize>(
    space: Space,
    address: u64,
    values: [T; N],
    write: impl FnOnce(Access, &[u8]),
) {
    let site = Location::caller();
    // SAFETY: an element is plain data without padding, so its bytes may be
    // viewed.
    let bytes =
        unsafe { core::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of::<[T; N]>()) };
    let access = Access {
        space,
        address,
        element_bytes: size_of::<T>() as u32,
        site,
    };
    write(access, bytes);
}

fn element_address<T>(base: SharedAddress, i: u32) -> u64 {
    // 64 bits, so that an index far outside shows as such instead of wrapping.
    base + u64::from(i) * size_of::<T>() as u64
}

#[track_caller]
pub(super) unsafe fn shared_load<T: super::Element>(base: SharedAddress, i: u32) -> T {
    let [value] = load(Space::Shared, element_address::<T>(base, i));
    value
}

#[track_caller]
pub(super) unsafe fn shared_store<T: super::Element>(base: SharedAddress, i: u32, value: T) {
    store(Space::Shared, element_address::<T>(base, i), [value]);
}

#[track_caller]
pub(super) unsafe fn shared_load_4<T: super::Element>(base: SharedAddress, i: u32) -> [T; 4] {
    load(Space::Shared, element_address::<T>(base, i))
}

#[track_caller]
pub(super) unsafe fn shared_store_4<T: super::Element>(
    base: SharedAddress,
    i: u32,
    values: [T; 4],
) {
    store(Space::Shared, element_address::<T>(base, i), values);
}

#[track_caller]
pub(super) unsafe fn global_load<T: super::Element>(pointer: *const T) -> T {
    let [value] = load(Space::Global, pointer.addr() as u64);
    value
}

#[track_caller]
pub(super) unsafe fn global_load_4<T: super::Element>(pointer: *const T) -> [T; 4] {
    load(Space::Global, pointer.addr() as u64)
}

#[track_caller]
pub(super) unsafe fn global_store<T: super::Element>(pointer: *mut T, value: T) {
    store(Space::Global, pointer.addr() as u64, [value]);
}

#[track_caller]
pub(super) unsafe fn global_store_4<T: super::Element>(pointer: *mut T, values: [T; 4]) {
    store(Space::Global, pointer.addr() as u64, values);
}

/// What this backend asks of a number.
pub trait FloatBackend: Sized {
    #[doc(hidden)]
    fn fma(a: Self, b: Self, c: Self) -> (Self, Operation);
    #[doc(hidden)]
    fn add(a: Self, b: Self) -> (Self, Operation);
    #[doc(hidden)]
    fn mul(a: Self, b: Self) -> (Self, Operation);
}

impl FloatBackend for f32 {
    fn fma(a: Self, b: Self, c: Self) -> (Self, Operation) {
        (a.mul_add(b, c), Operation::FmaF32)
    }
    fn add(a: Self, b: Self) -> (Self, Operation) {
        (a + b, Operation::AddF32)
    }
    fn mul(a: Self, b: Self) -> (Self, Operation) {
        (a * b, Operation::MulF32)
    }
}

impl FloatBackend for f64 {
    fn fma(a: Self, b: Self, c: Self) -> (Self, Operation) {
        (a.mul_add(b, c), Operation::FmaF64)
    }
    fn add(a: Self, b: Self) -> (Self, Operation) {
        (a + b, Operation::AddF64)
    }
    fn mul(a: Self, b: Self) -> (Self, Operation) {
        (a * b, Operation::MulF64)
    }
}

#[track_caller]
pub(super) fn fma<T: FloatBackend>(a: T, b: T, c: T) -> T {
    let site = Location::caller();
    let (value, operation) = T::fma(a, b, c);
    machine(|machine| machine.count(operation, site));
    value
}

#[track_caller]
pub(super) fn add<T: FloatBackend>(a: T, b: T) -> T {
    let site = Location::caller();
    let (value, operation) = T::add(a, b);
    machine(|machine| machine.count(operation, site));
    value
}

#[track_caller]
pub(super) fn mul<T: FloatBackend>(a: T, b: T) -> T {
    let site = Location::caller();
    let (value, operation) = T::mul(a, b);
    machine(|machine| machine.count(operation, site));
    value
}

#[doc(hidden)]
#[track_caller]
pub fn shared_address(name: &'static str, bytes: usize) -> u64 {
    let site = Location::caller();
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    machine(|machine| machine.declare_shared(name, bytes, site))
}

/// Declares a shared array of the running block and gives its
/// [`Shared`](super::Shared).
#[doc(hidden)]
#[macro_export]
macro_rules! declare_shared {
    ($kernel:ident, $array:ident, $element:ty, $len:expr) => {{
        let address = $crate::gpu::host::shared_address(
            stringify!($array),
            const { $len * size_of::<$element>() },
        );
        // SAFETY: the machine gave the address of an array of this size.
        unsafe { $crate::gpu::Shared::<$element, { $len }>::from_address(address) }
    }};
}
pub use crate::declare_shared;

/// What a machine must know to run kernels that copy asynchronously.
///
/// A machine that does gives itself as [`Machine::asynchronous`]. Shared and
/// global addresses are the machine's, as elsewhere.
pub trait Asynchronous {
    /// Starts copying `bytes` bytes, 4, 8 or 16, from global memory at `from`
    /// to shared memory at `to`; zeros, and without a read, where not `valid`.
    /// Nothing may read them, nor may anything write there, before the copy has
    /// landed and the thread has learnt of it.
    fn copy(&self, to: u64, from: u64, bytes: u32, valid: bool, site: Site);
    /// Closes the running thread's group of copies.
    fn commit_copies(&self, site: Site);
    /// Waits until all of the thread's groups but the `newest` last have landed.
    fn wait_for_copies(&self, newest: u32, site: Site);
    /// Makes the 8 bytes at `barrier` a barrier of `arrivals` arrivals a phase.
    fn init_barrier(&self, barrier: u64, arrivals: u32, site: Site);
    /// Arrives, and adds `bytes` to what the phase waits for.
    fn arrive(&self, barrier: u64, bytes: u32, site: Site);
    /// Arrives when all copies that the thread has started have landed.
    fn arrive_after_copies(&self, barrier: u64, site: Site);
    /// Waits for the end of the phase of that parity.
    fn wait_for_phase(&self, barrier: u64, parity: u32, site: Site);
    /// Whether the phase of that parity has ended; if so, as after waiting for it.
    fn phase_has_ended(&self, barrier: u64, parity: u32, site: Site) -> bool;
    /// Starts copying a box of a matrix to shared memory at `to`, to complete
    /// on `barrier`.
    fn copy_box(&self, to: u64, map: TensorMap, row: u32, column: u32, barrier: u64, site: Site);
    /// Waits for the other threads of the running thread's warp.
    fn sync_warp(&self, site: Site);
}

/// The installed machine, as one for asynchronous copies.
///
/// # Panics
///
/// Where it is none.
#[track_caller]
fn asynchronous<R>(call: impl FnOnce(&dyn Asynchronous) -> R) -> R {
    machine(|machine| {
        let Some(machine) = machine.asynchronous() else {
            panic!("the machine that runs this kernel knows no asynchronous copies");
        };
        call(machine)
    })
}

pub(super) fn shared_element<T>(base: SharedAddress, i: u32) -> SharedAddress {
    element_address::<T>(base, i)
}

#[track_caller]
pub(super) unsafe fn copy_async(to: SharedAddress, from: u64, bytes: u32, valid: bool) {
    let site = Location::caller();
    asynchronous(|machine| machine.copy(to, from, bytes, valid, site));
}

#[track_caller]
pub(super) fn commit_copies() {
    let site = Location::caller();
    asynchronous(|machine| machine.commit_copies(site));
}

#[track_caller]
pub(super) fn wait_for_copies<const NEWEST: u32>() {
    let site = Location::caller();
    asynchronous(|machine| machine.wait_for_copies(NEWEST, site));
}

#[track_caller]
pub(super) unsafe fn init_barrier(barrier: SharedAddress, arrivals: u32) {
    let site = Location::caller();
    asynchronous(|machine| machine.init_barrier(barrier, arrivals, site));
}

#[track_caller]
pub(super) unsafe fn arrive(barrier: SharedAddress) {
    let site = Location::caller();
    asynchronous(|machine| machine.arrive(barrier, 0, site));
}

#[track_caller]
pub(super) unsafe fn arrive_expecting(barrier: SharedAddress, bytes: u32) {
    let site = Location::caller();
    asynchronous(|machine| machine.arrive(barrier, bytes, site));
}

#[track_caller]
pub(super) unsafe fn arrive_after_copies(barrier: SharedAddress) {
    let site = Location::caller();
    asynchronous(|machine| machine.arrive_after_copies(barrier, site));
}

#[track_caller]
pub(super) unsafe fn wait_for_phase(barrier: SharedAddress, parity: u32) {
    let site = Location::caller();
    asynchronous(|machine| machine.wait_for_phase(barrier, parity, site));
}

#[track_caller]
pub(super) unsafe fn phase_has_ended(barrier: SharedAddress, parity: u32) -> bool {
    let site = Location::caller();
    asynchronous(|machine| machine.phase_has_ended(barrier, parity, site))
}

/// Every thread of a machine sees a barrier that another has made.
pub(super) fn publish_barriers() {}

#[track_caller]
pub(super) fn sync_warp() {
    let site = Location::caller();
    asynchronous(|machine| machine.sync_warp(site));
}

/// A matrix that the copy engine cuts boxes out of.
#[derive(Clone, Copy, Debug)]
pub struct TensorMap {
    /// Its sizes.
    pub spec: crate::launch::TensorMapSpec,
    /// Where it starts, in the machine's terms.
    pub address: u64,
}

impl TensorMap {
    pub(crate) fn new(spec: crate::launch::TensorMapSpec, address: u64) -> Self {
        Self { spec, address }
    }
}

#[track_caller]
pub(super) unsafe fn copy_box(
    to: SharedAddress,
    map: TensorMap,
    row: u32,
    column: u32,
    barrier: SharedAddress,
) {
    let site = Location::caller();
    asynchronous(|machine| machine.copy_box(to, map, row, column, barrier, site));
}

/// What a machine must know to run the blocks of a cluster.
///
/// A machine that does gives itself as [`Machine::clusters`].
pub trait Clusters {
    /// The running block's rank in its cluster, and the cluster's blocks.
    fn cluster_position(&self) -> (u32, u32);
    /// Says that the running thread has come to the cluster's barrier, and with
    /// `release` that what it did before comes before what others do after.
    fn arrive_at_cluster(&self, release: bool, site: Site);
    /// Waits until all threads of the cluster's blocks have arrived.
    fn wait_for_cluster(&self, site: Site);
    /// Reads `value.len()` bytes of the shared memory of the cluster's block
    /// `rank`, all in one access. The address is one of the running block's own
    /// arrays: the same place in the other block is meant.
    fn load_of_cluster(&self, rank: u32, access: Access, value: &mut [u8]);
    /// Writes `value` likewise.
    fn store_to_cluster(&self, rank: u32, access: Access, value: &[u8]);
}

/// The installed machine, as one for clusters.
///
/// # Panics
///
/// Where it is none.
#[track_caller]
fn clusters<R>(call: impl FnOnce(&dyn Clusters) -> R) -> R {
    machine(|machine| {
        let Some(machine) = machine.clusters() else {
            panic!("the machine that runs this kernel knows no clusters");
        };
        call(machine)
    })
}

/// A place in the shared memory of a block of the cluster: the address, and the
/// block's rank.
pub(super) type ClusterAddress = (SharedAddress, u32);

#[track_caller]
pub(super) fn cluster_rank() -> u32 {
    clusters(|machine| machine.cluster_position().0)
}

#[track_caller]
pub(super) fn cluster_size() -> u32 {
    clusters(|machine| machine.cluster_position().1)
}

#[track_caller]
pub(super) fn arrive_at_cluster() {
    let site = Location::caller();
    clusters(|machine| machine.arrive_at_cluster(true, site));
}

#[track_caller]
pub(super) fn arrive_at_cluster_relaxed() {
    let site = Location::caller();
    clusters(|machine| machine.arrive_at_cluster(false, site));
}

#[track_caller]
pub(super) fn wait_for_cluster() {
    let site = Location::caller();
    clusters(|machine| machine.wait_for_cluster(site));
}

pub(super) fn address_in_cluster(address: SharedAddress, rank: u32) -> ClusterAddress {
    (address, rank)
}

pub(super) fn cluster_element((base, rank): ClusterAddress, i: u32) -> ClusterAddress {
    (element_address::<f32>(base, i), rank)
}

#[track_caller]
pub(super) unsafe fn cluster_load_4((address, rank): ClusterAddress) -> [f32; 4] {
    load_by(Space::Shared, address, |access, bytes| {
        clusters(|machine| machine.load_of_cluster(rank, access, bytes));
    })
}

#[track_caller]
pub(super) unsafe fn cluster_store_4((address, rank): ClusterAddress, values: [f32; 4]) {
    store_by(Space::Shared, address, values, |access, bytes| {
        clusters(|machine| machine.store_to_cluster(rank, access, bytes));
    });
}

pub(super) fn wait_for_launch_before() {}

pub(super) fn prefetch_tensor_map(_: TensorMap) {}

pub(super) fn uniform(value: u32) -> u32 {
    value
}

pub(super) fn elect() -> bool {
    super::warp::lane() == 0
}

pub(super) fn opaque(value: u32) -> u32 {
    value
}

/// Gives the [`Shared`](super::Shared) of an array in the dynamic shared
/// memory. The machine places it as it does any other.
#[doc(hidden)]
#[macro_export]
macro_rules! declare_dynamic_shared {
    ($array:ident, $element:ty, $len:expr, $offset:expr) => {{
        let address = $crate::gpu::host::shared_address(
            stringify!($array),
            const { $len * size_of::<$element>() },
        );
        // SAFETY: the machine gave the address of an array of this size.
        unsafe { $crate::gpu::Shared::<$element, { $len }>::from_address(address) }
    }};
}
pub use crate::declare_dynamic_shared;
