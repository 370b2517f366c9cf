// The hash of a key's bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// The mixing step of wyhash: both halves of a 128-bit product, folded.
static inline uint64_t fg_fold(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t fg_hash_bytes(const unsigned char *data, size_t size) {
  uint64_t pair[2], state = fg_fold(size ^ 0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u);
  for (; size; data += 16, size -= 16) {
    if (size < 16) {
      pair[0] = pair[1] = 0;
      memcpy(pair, data, size);
      size = 16;
    } else {
      memcpy(pair, data, 16);
    }
    state = fg_fold(pair[0] ^ 0x94d049bb133111ebu, pair[1] ^ state);
  }
  return fg_fold(state ^ 0xd6e8feb86659fd93u, 0x9e3779b97f4a7c15u);
}
