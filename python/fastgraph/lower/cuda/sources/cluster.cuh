// Blocks of a cluster: they run at once, and each can write to the shared memory of the others.

// All threads of all of them arrive before any goes on behind the wait. Nothing but that the blocks
// have begun, and have made their barriers, is known then.
FG_DEVICE void cluster_arrive() {
#ifndef FG_HOST
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
#endif
}
FG_DEVICE void cluster_wait() {
#ifdef FG_HOST
  cuda_host::cuda_host_cluster_barrier();
#elif __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait;" ::: "memory");
#endif
}

// One thread of a block makes its barrier, which waits for so many pieces of 16 bytes, once; then it
// arrives.
FG_DEVICE void await_pieces(u64 *barrier, u32 pieces) {
#ifdef FG_HOST
  cuda_host::cuda_host_mbarrier_init(barrier, pieces);
#elif __CUDA_ARCH__ >= 900
  const u32 at = shared_address(barrier);
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(16 * pieces)
               : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
// Writes a piece to where block `rank` has what lies at `own` here, and tells its barrier, without any
// wait. A block has to be there until all of its pieces are.
FG_DEVICE void send_piece(const f32 (&x)[4], f32 *own, u64 *barrier, u32 rank) {
#ifdef FG_HOST
  memcpy(cuda_host::cuda_host_cluster_shared(own, rank), x, 16);
  cuda_host::cuda_host_mbarrier_arrive(cuda_host::cuda_host_cluster_shared(barrier, rank));
#elif __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .b32 to, at; mapa.shared::cluster.u32 to, %0, %2; mapa.shared::cluster.u32 at, %1, "
      "%2; "
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], {%3, %4, %5, %6}, [at]; "
      "}" ::"r"(shared_address(own)),
      "r"(shared_address(barrier)), "r"(rank), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3])
      : "memory");
#endif
}
FG_DEVICE void wait_for_pieces(u64 *barrier) {
#ifdef FG_HOST
  cuda_host::cuda_host_mbarrier_wait(barrier, 0);
#elif __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0; "
      "@p bra done; bra again; done: }" ::"r"(shared_address(barrier))
      : "memory");
#endif
}
