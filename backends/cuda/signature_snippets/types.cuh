template <unsigned long long __ke_n> struct __ke_known { typedef void __ke_type_; };
template <class __ke_T, class = void> struct __ke_size { enum { __ke_value_ = 0 }; };
template <class __ke_T> struct __ke_size<__ke_T, typename __ke_known<sizeof(__ke_T)>::__ke_type_>
{ enum { __ke_value_ = sizeof(__ke_T) }; };
template <class __ke_T, int __ke_enum> struct __ke_kind { enum { __ke_value_ = 's' }; };
template <class __ke_T, bool __ke_complete> struct __ke_enumeration { enum { __ke_value_ = 0 }; };
template <class __ke_T> struct __ke_enumeration<__ke_T, true> { enum { __ke_value_ = __is_enum(__ke_T) }; };
template <class __ke_T> struct __ke_type {
  enum { __ke_size_ = __ke_size<__ke_T>::__ke_value_,
         __ke_enum_ = __ke_enumeration<__ke_T, __ke_size<__ke_T>::__ke_value_ != 0>::__ke_value_,
         __ke_kind_ = __ke_kind<__ke_T, __ke_enum_>::__ke_value_ };
};
template <class __ke_T> struct __ke_type<const __ke_T> : __ke_type<__ke_T> {};
template <class __ke_T> struct __ke_type<volatile __ke_T> : __ke_type<__ke_T> {};
template <class __ke_T> struct __ke_type<const volatile __ke_T> : __ke_type<__ke_T> {};
template <class __ke_T> struct __ke_kind<__ke_T, 1>
{ enum { __ke_value_ = __ke_type<__underlying_type(__ke_T)>::__ke_kind_ }; };
template <class __ke_T> struct __ke_kind<__ke_T *, 0> { enum { __ke_value_ = 'p' }; };
#define __ke_is(T, k) template <> struct __ke_kind<T, 0> { enum { __ke_value_ = k }; };
__ke_is(void, 'v') __ke_is(bool, 'b') __ke_is(float, 'f') __ke_is(double, 'f')
__ke_is(signed char, 'i') __ke_is(short, 'i') __ke_is(int, 'i') __ke_is(long, 'i') __ke_is(long long, 'i')
__ke_is(unsigned char, 'u') __ke_is(unsigned short, 'u') __ke_is(unsigned int, 'u') __ke_is(unsigned long, 'u')
__ke_is(unsigned long long, 'u') __ke_is(char, 'c') __ke_is(wchar_t, 'i') __ke_is(char16_t, 'u') __ke_is(char32_t, 'u')
#ifdef __CUDA_FP16_H__
__ke_is(__half, 'h')
#endif
#ifdef __CUDA_BF16_H__
__ke_is(__nv_bfloat16, 'g')
#endif
#ifdef __CUDA_FP8_H__
__ke_is(__nv_fp8_e4m3, '4') __ke_is(__nv_fp8_e5m2, '5')
#endif
template <class __ke_T> struct __ke_target { enum { __ke_word_ = 0 }; };
template <class __ke_T> struct __ke_target<__ke_T *>
{ enum { __ke_word_ = __ke_type<__ke_T>::__ke_size_ << 9 | __ke_type<__ke_T>::__ke_kind_ }; };
template <class __ke_T> struct __ke_target<const __ke_T *>
{ enum { __ke_word_ = __ke_type<__ke_T>::__ke_size_ << 9 | 256 | __ke_type<__ke_T>::__ke_kind_ }; };
template <unsigned __ke_n> struct __ke_words { unsigned __ke_word_[__ke_n]; };
template <class __ke_T> struct __ke_entry
{ enum { __ke_word_ = __ke_type<__ke_T>::__ke_size_ << 9 | __ke_type<__ke_T>::__ke_kind_ }; };
