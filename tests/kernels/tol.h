/* How far a result may be from the reference. */
#ifndef TOL_H
#define TOL_H

/* Floats between a and b: 0 when they are equal (+0 and -0 are), or both NaN; infinite when one is.
 */
double tol_ulp(float a, float b);

/* Width of one ULP at v; 0 when v is not finite. */
double tol_ulp_width(float v);

/* Bound of a sum: (n + 2) 2^-24 sum_abs, and the same in units of the smallest denormal. */
double tol_sum(double n_term, double sum_abs);

/* |got - want| <= bound; also when both are the same infinity, or NaN. */
int tol_within(float got, float want, double bound);

#endif
