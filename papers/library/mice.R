# Analyses the tables that `python -m papers.library.mice write DIR` wrote, by mice with default settings:
#   Rscript papers/library/mice.R DIR
# Tables of groups are completed by 2l.pan, and their imputed values are written instead of an analysis.
# Each file of results is written when its design is done, and a design that has one is left out.
suppressMessages(library(mice))

folder <- commandArgs(trailingOnly = TRUE)[1]
designs <- read.csv(file.path(folder, "designs.csv"), stringsAsFactors = FALSE, colClasses = c(group = "character"))

analyse <- function(path, formula, model, n_draws, seed) {
  table <- read.csv(path, stringsAsFactors = TRUE) # levels of text columns become factors
  began <- proc.time()
  imputed <- mice(table, m = n_draws, seed = seed, printFlag = FALSE)
  fits <- lapply(seq_len(n_draws), function(i) {
    completed <- complete(imputed, i)
    if (model == "poisson") {
      glm(as.formula(formula), family = poisson, data = completed)
    } else {
      lm(as.formula(formula), data = completed)
    }
  })
  pooled <- summary(pool(as.mira(fits)), conf.int = TRUE)
  spent <- proc.time() - began
  data.frame(
    term = as.character(pooled$term), estimate = pooled$estimate,
    low = pooled[["2.5 %"]], high = pooled[["97.5 %"]],
    seconds = spent[["user.self"]] + spent[["sys.self"]]
  )
}

complete_groups <- function(path, group, n_draws, seed) {
  table <- read.csv(path)
  method <- setNames(ifelse(colSums(is.na(table)) > 0, "2l.pan", ""), names(table))
  predictors <- make.predictorMatrix(table)
  predictors[, group] <- -2 # the class of rows; other columns have fixed effects
  began <- proc.time()
  # One column is incomplete, so that one cycle is enough; 2l.pan runs its own Gibbs sampler in it.
  imputed <- mice(table,
    m = n_draws, method = method, predictorMatrix = predictors, maxit = 1, seed = seed, printFlag = FALSE
  )
  spent <- proc.time() - began
  rows <- which(is.na(table$y))
  do.call(rbind, lapply(seq_len(n_draws), function(i) {
    data.frame(
      draw = i - 1, row = rows - 1, y = complete(imputed, i)$y[rows],
      seconds = spent[["user.self"]] + spent[["sys.self"]]
    )
  }))
}

for (d in seq_len(nrow(designs))) {
  design <- designs[d, ]
  output <- file.path(folder, paste0(design$name, "-results.csv"))
  if (file.exists(output)) next
  found <- lapply(seq_len(design$repetitions) - 1, function(repetition) {
    path <- file.path(folder, sprintf("%s-%d.csv", design$name, repetition))
    one <- if (design$group == "") {
      analyse(path, design$formula, design$model, design$draws, repetition)
    } else {
      complete_groups(path, design$group, design$draws, repetition)
    }
    cbind(repetition = repetition, one)
  })
  write.csv(do.call(rbind, found), output, row.names = FALSE)
  cat(design$name, "\n")
}

versions <- data.frame(R = as.character(getRversion()), mice = as.character(packageVersion("mice")), pan = as.character(packageVersion("pan")))
write.csv(versions, file.path(folder, "versions.csv"), row.names = FALSE)
