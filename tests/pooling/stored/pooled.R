# Writes completed tables, and what packages of R find on them; `test_stored.py` compares it with halfseen:
#   Rscript tests/pooling/stored/pooled.R
# The numbers in this folder are those of R 4.2.2, mice 3.15.0, mitml 0.4.4, survival 3.5.3, survey 4.1.1 and
# mitools 2.4.
suppressMessages({
  library(mice)
  library(mitml)
  library(survival)
  library(survey)
  library(mitools)
})

here <- sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE))
here <- if (length(here)) dirname(here) else "."
set.seed(1)
n <- 60
m <- 5
base <- data.frame(
  z = round(rnorm(n), 3), psu = rep(1:12, each = 5), stratum = rep(c("a", "b", "c"), each = 20),
  w = round(runif(n, 0.5, 3), 2), time = ceiling(6 * rexp(n)), died = rbinom(n, 1, 0.7)
)
known <- round(0.5 * base$z + rnorm(n), 3)
level <- sample(c("a", "b", "c"), n, replace = TRUE)
outcome <- known + 0.5 * base$z + 0.4 * (level == "c") + rnorm(n)
tables <- lapply(seq_len(m), function(i) {
  one <- base
  hidden <- seq_len(n) %% 3 == 0 # these values differ between tables
  one$x <- ifelse(hidden, round(known + rnorm(n, sd = 0.7), 3), known)
  one$g <- ifelse(seq_len(n) %% 4 == 0, sample(c("a", "b", "c"), n, replace = TRUE), level)
  one$y <- round(ifelse(seq_len(n) %% 5 == 0, outcome + rnorm(n, sd = 0.5), outcome), 3)
  one$b <- as.integer(one$y > 0.2)
  one
})
write.csv(do.call(rbind, Map(cbind, table = seq_len(m), tables)), file.path(here, "tables.csv"), row.names = FALSE)

found <- list()
keep <- function(source, what, name, value) {
  found[[length(found) + 1]] <<- data.frame(source = source, what = what, name = name, value = as.numeric(value))
}
keep_test <- function(source, what, values) {
  for (name in names(values)) keep(source, what, name, values[[name]])
}

# Rubin's rules.
lms <- lapply(tables, function(d) lm(y ~ x + z + g, d))
nulls <- lapply(tables, function(d) lm(y ~ x, d))
glms <- lapply(tables, function(d) glm(b ~ x + z, binomial, d, control = list(epsilon = 1e-14)))
small <- lapply(tables, function(d) glm(b ~ x, binomial, d, control = list(epsilon = 1e-14)))
coxs <- lapply(tables, function(d) coxph(Surv(time, died) ~ x + z, d, control = coxph.control(eps = 1e-14)))
cox_small <- lapply(tables, function(d) coxph(Surv(time, died) ~ x, d, control = coxph.control(eps = 1e-14)))
for (what in c("ols", "logit", "cox")) {
  fits <- list(ols = lms, logit = glms, cox = coxs)[[what]]
  pooled <- pool(as.mira(fits))$pooled
  for (score in c("estimate", "t", "df", "riv", "fmi")) {
    for (j in seq_len(nrow(pooled))) keep("mice", paste(what, score), pooled$term[j], pooled[[score]][j])
  }
}
for (dfcom in c(Inf, 55)) {
  estimates <- testEstimates(lms, df.com = if (is.finite(dfcom)) dfcom else NULL)$estimates
  for (score in c("Estimate", "Std.Error", "df", "RIV", "FMI")) {
    for (j in seq_len(nrow(estimates))) {
      keep("mitml", paste("ols", score, dfcom), rownames(estimates)[j], estimates[j, score])
    }
  }
}

# D1, D2 and D3. For models of the same data mice names the tests by its functions, mitml by their method.
test <- function(result) {
  values <- result$result
  list(statistic = values[1], df1 = values[2], df2 = values[3], p = values[4], riv = values[5])
}
keep_test("mice", "D1 ols", test(D1(as.mira(lms), as.mira(nulls))))
keep_test("mice", "D1 ols, dfcom 55", test(D1(as.mira(lms), as.mira(nulls), dfcom = 55)))
keep_test("mice", "D1 ols, dfcom 1e9", test(D1(as.mira(lms), as.mira(nulls), dfcom = 1e9)))
keep_test("mice", "D2 ols, wald", test(D2(as.mira(lms), as.mira(nulls))))
keep_test("mice", "D2 logit, likelihood", test(D2(as.mira(glms), as.mira(small), use = "likelihood")))
keep_test("mice", "D3 ols", test(D3(as.mira(lms), as.mira(nulls))))
keep_test("mice", "D3 logit", test(D3(as.mira(glms), as.mira(small))))
of_mitml <- function(result) {
  values <- result$test[1, ]
  list(
    statistic = values[["F.value"]], df1 = values[["df1"]], df2 = values[["df2"]],
    p = values[["P(>F)"]], riv = values[["RIV"]]
  )
}
keep_test("mitml", "D1 ols", of_mitml(testModels(lms, nulls, method = "D1")))
keep_test("mitml", "D1 ols, df.com 55", of_mitml(testModels(lms, nulls, method = "D1", df.com = 55)))
keep_test("mitml", "D2 ols, wald", of_mitml(testModels(lms, nulls, method = "D2", use = "wald")))
keep_test("mitml", "D2 logit, likelihood", of_mitml(testModels(glms, small, method = "D2", use = "likelihood")))
keep_test("mitml", "D2 cox, wald", of_mitml(testModels(coxs, cox_small, method = "D2", use = "wald")))
keep_test("mitml", "D3 ols", of_mitml(testModels(lms, nulls, method = "D3")))

# Survey designs: estimates and variances of each table, and pooled.
designs <- svydesign(
  ids = ~psu, strata = ~stratum, weights = ~w, data = imputationList(tables), nest = TRUE
)
for (what in c("survey ols", "survey logit")) {
  fits <- if (what == "survey ols") {
    with(designs, svyglm(y ~ x + z))
  } else {
    with(designs, svyglm(b ~ x + z, family = quasibinomial(), control = list(epsilon = 1e-14)))
  }
  pooled <- MIcombine(fits)
  for (name in names(coef(pooled))) {
    keep("survey", paste(what, "estimate"), name, coef(pooled)[[name]])
    keep("survey", paste(what, "error"), name, sqrt(vcov(pooled)[name, name]))
  }
  keep("survey", paste(what, "covariance"), "x, z", vcov(pooled)["x", "z"])
  keep("survey", paste(what, "df"), "design", degf(designs$designs[[1]]))
}

for (what in c("cox", "cox small")) {
  fits <- if (what == "cox") coxs else cox_small
  for (i in seq_len(m)) keep("survival", paste(what, "log likelihood"), as.character(i), fits[[i]]$loglik[2])
}
clustered <- coxph(Surv(time, died) ~ x + z + cluster(psu), tables[[1]],
  ties = "breslow", control = coxph.control(eps = 1e-14)
)
for (name in c("x", "z")) {
  keep("survival", "cox in clusters estimate", name, coef(clustered)[[name]])
  keep("survival", "cox in clusters variance", name, vcov(clustered)[name, name])
}

# Other statistics.
for (adjusted in c(FALSE, TRUE)) {
  found_r <- pool.r.squared(as.mira(lms), adjusted = adjusted)
  for (name in c("est", "fmi")) keep("mice", paste("R squared, adjusted", adjusted), name, found_r[1, name])
}
untied <- tables[[1]]
untied$time <- untied$time + seq_len(n) / 1000 # with ties, mice adds 1 / n, 1 / (n - 1) and so on
keep("mice", "nelsonaalen", as.character(seq_len(n)), nelsonaalen(untied, time, died))
scalar <- pool.scalar(c(1, 2, 3), c(0.5, 0.6, 0.7), n = 23, k = 3)
for (name in c("qbar", "t", "df", "r", "fmi")) keep("mice", "pool.scalar", name, scalar[[name]])

stored <- do.call(rbind, found)
stored$value <- format(stored$value, digits = 16, trim = TRUE, scientific = TRUE)
write.csv(stored, file.path(here, "found.csv"), row.names = FALSE, quote = c(1, 2, 3))
