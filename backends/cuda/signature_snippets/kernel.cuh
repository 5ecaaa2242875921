template <class... __ke_T>
__device__ constexpr __ke_words<2 * sizeof...(__ke_T) + 2> __ke_describe(void (*)(__ke_T...)) {
  return {{MARK, unsigned(__ke_entry<__ke_T>::__ke_word_)..., unsigned(__ke_target<__ke_T>::__ke_word_)..., MARK}};
}
__device__ auto TABLE = __ke_describe(static_cast<decltype(&KERNEL)>(nullptr));
