#include <cstdio>
#include <exception>
#include <utility>
template <> struct __ke_kind<CUstream_st *, 0> { enum { __ke_value_ = 't' }; };
template <class __ke_R, class... __ke_T>
constexpr __ke_words<2 * sizeof...(__ke_T) + 5> __ke_describe(__ke_R (*)(__ke_T...)) {
  return {{MARK, 2 * sizeof...(__ke_T),
           unsigned(__ke_entry<__ke_T>::__ke_word_)..., unsigned(__ke_target<__ke_T>::__ke_word_)...}};
}
__attribute__((used)) auto TABLE = __ke_describe(static_cast<decltype(&KERNEL)>(nullptr));
template <class __ke_R, class... __ke_T, std::size_t... __ke_i>
void __ke_apply(__ke_R (*function)(__ke_T...), unsigned long long *words, std::index_sequence<__ke_i...>) {
  function(*reinterpret_cast<__ke_T *>(words + __ke_i)...);
}
template <class __ke_R, class... __ke_T>
void __ke_apply(__ke_R (*function)(__ke_T...), unsigned long long *words) {
  __ke_apply(function, words, std::make_index_sequence<sizeof...(__ke_T)>());
}
extern "C" const char *CALL(unsigned long long *words) {
  static char text[256];
  cudaGetLastError();
  try {
    __ke_apply(&KERNEL, words);
  } catch (const std::exception &error) {
    std::snprintf(text, sizeof text, "threw %s", error.what());
    return text;
  }
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return nullptr;
  std::snprintf(text, sizeof text, "left %s: %s", cudaGetErrorName(status), cudaGetErrorString(status));
  return text;
}
