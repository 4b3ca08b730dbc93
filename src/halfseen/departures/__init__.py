"""Departures from missing at random: conclusions if missing values differ from imputed ones."""
